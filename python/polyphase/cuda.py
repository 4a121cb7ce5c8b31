"""NVIDIA GPUs: streams, graphs, their memory. Without one, what needs it raises DeviceError."""
from polyphase._core.cuda import *  # noqa: F403
