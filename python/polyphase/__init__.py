"""1-D upsampling networks: convolutions, layers, training and published vocoders, on the CPU and NVIDIA GPUs.

    import polyphase as pp

    net = pp.Sequential(pp.Conv1d(1, 64, 7, padding=3), pp.LeakyReLU(0.1), pp.ConvTranspose1d(64, 1, 8, stride=4, padding=2))
    y = net(pp.zeros((1, 1, 100)))

Names are those of the C++ library. Importing starts no threads and uses no GPU.
"""
from polyphase import _core
from polyphase._core import *  # noqa: F403
from polyphase._core import __version__

__all__ = [*_core.__all__, "__version__"]
