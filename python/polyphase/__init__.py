"""1-D upsampling networks: convolutions, layers, training and published vocoders, on the CPU and NVIDIA GPUs.

    import polyphase as pp

    net = pp.Sequential(pp.Conv1d(1, 64, 7, padding=3), pp.LeakyReLU(0.1), pp.ConvTranspose1d(64, 1, 8, stride=4, padding=2))
    y = net(pp.zeros((1, 1, 100)))

Names are those of the C++ library. Importing starts no threads and uses no GPU.
"""
import os as _os

from polyphase import _packages

_packages.refuse_two(_os.path.dirname(_os.path.dirname(_os.path.abspath(__file__))))
try:
    from polyphase import _core
except ImportError as _error:
    from polyphase import _libraries

    _core = _libraries.import_with(_error, "polyphase._core")

from polyphase._core import *  # noqa: E402, F403
from polyphase._core import __version__  # noqa: E402
from polyphase import cuda  # noqa: E402

__all__ = [*_core.__all__, "__version__"]
