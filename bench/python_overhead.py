#!/usr/bin/env python3
"""What a call from Python costs at sizes where nothing else counts, with NumPy's for comparison, on the CPU.

usage: OMP_NUM_THREADS=1 python bench/python_overhead.py      with polyphase and NumPy installed
Prints microseconds, the best of five rounds, and the milliseconds of the first import.
"""
import time

begin = time.perf_counter()
import polyphase as pp  # noqa: E402

imported = 1e3 * (time.perf_counter() - begin)

import timeit  # noqa: E402

import numpy as np  # noqa: E402
from polyphase import _core  # noqa: E402


def microseconds(function, calls=10000):
    return 1e6 * min(timeit.repeat(function, number=calls, repeat=5)) / calls


def main():
    a, x = np.ones((4, 16), np.float32), pp.ones((4, 16))
    row, taps = np.ones(16, np.float32), np.ones(3, np.float32)
    signal, weight = pp.from_dlpack(row).reshape((1, 1, 16)), pp.from_dlpack(taps).reshape((1, 1, 3))
    out = np.empty(14, np.float32)
    raw = ((False, 1, 1, 1, 16, 3, 1, 0, 0, 0, 1, 1), "f32", row.ctypes.data, taps.ctypes.data, 0, 0, out.ctypes.data, 0, 0, -1, 0, "fp32")
    for name, ours, theirs in [
        ("add (4, 16)", lambda: x + x, lambda: a + a),
        ("exp (4, 16)", lambda: pp.exp(x), lambda: np.exp(a)),
        ("shape", lambda: x.shape, lambda: a.shape),
        ("convolution of 16 with 3", lambda: pp.conv1d(signal, weight), lambda: np.convolve(row, taps, "valid")),
        ("the same on raw addresses", lambda: _core.conv_forward(*raw), None),
        ("from_dlpack of an array", lambda: pp.from_dlpack(a), None),
        ("asarray of a tensor", lambda: np.asarray(x), None),
    ]:
        peer = f", NumPy {microseconds(theirs):6.2f}" if theirs else ""
        print(f"{name:28} {microseconds(ours):6.2f} us{peer}")
    print(f"{'import':28} {imported:6.1f} ms")


main()
