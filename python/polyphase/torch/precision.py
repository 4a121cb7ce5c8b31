"""The accuracy of f32 convolutions."""

import contextlib
import threading

NAMES = ("ieee", "fp32", "tf32")


class _Thread(threading.local):
    def __init__(self):  # an attribute of the instance: torch.compile compiles again when it has another value
        self.precision = "fp32"


_thread = _Thread()


def check(precision):
    """`precision` itself. Raises ValueError unless it is a name of one."""
    if precision not in NAMES:
        raise ValueError(f"precision: expected one of {', '.join(NAMES)}, got {precision!r}")
    return precision


def current_precision():
    """The calling thread's precision: "fp32" unless a `precision` context is open."""
    return _thread.precision


@contextlib.contextmanager
def precision(name):
    """Sets the precision of the calling thread's convolutions in a `with` block, except layers that have their own.

    "ieee": f32 multiply-adds. "fp32" (default): an error against float64 that is no worse. "tf32": operands may be rounded to tf32 (11
    significant bits). 16-bit and f64 tensors are not affected, and a backward pass has the precision of its forward pass.
    """
    before, _thread.precision = _thread.precision, check(name)
    try:
        yield
    finally:
        _thread.precision = before
