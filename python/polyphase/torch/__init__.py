"""polyphase's convolutions for PyTorch: functions, layers with torch's own interface, and the replacement of a model's layers."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("polyphase.torch needs PyTorch; install the package torch") from error

from . import gradients as _gradients
from .antialias import antialias_snake
from .functional import conv1d, conv_transpose1d
from .modules import Conv1d, ConvTranspose1d
from .precision import current_precision, precision
from .replacement import Report, replace, restore

if _gradients.HAS_OPERATORS:
    from . import operators as _operators  # noqa: F401

__all__ = [
    "Conv1d",
    "ConvTranspose1d",
    "Report",
    "antialias_snake",
    "conv1d",
    "conv_transpose1d",
    "current_precision",
    "precision",
    "replace",
    "restore",
]
