"""1-D upsampling networks: convolutions, layers, training and published vocoders, on the CPU and NVIDIA GPUs.

The compiled library is `polyphase._core`.
"""
from polyphase._core import (
    AutogradError,
    DeviceError,
    DTypeError,
    Error,
    FormatError,
    NotImplemented,
    OutOfMemory,
    ShapeError,
    __version__,
)

__all__ = [
    "AutogradError",
    "DTypeError",
    "DeviceError",
    "Error",
    "FormatError",
    "NotImplemented",
    "OutOfMemory",
    "ShapeError",
    "__version__",
]
