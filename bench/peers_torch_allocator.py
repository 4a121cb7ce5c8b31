#!/usr/bin/env python3
"""Times PyTorch's caching allocator on the sizes of allocator's JSON: a warm pair of allocate and free.

    peers_torch_allocator.py OURS.json [--json MERGED.json]

Adds "torch_caching_allocator" to the peers of the library's own records, in microseconds. The calls go through Python; that overhead is
timed with an empty allocation and printed, not subtracted.
"""

import statistics
import time

import torch

import peers

PAIRS = 2000


def pair_us(allocate, free):
    times = []
    for run in range(-1, 7):
        start = time.perf_counter()
        for _ in range(PAIRS):
            free(allocate())
        if run >= 0:
            times.append((time.perf_counter() - start) * 1e6 / PAIRS)
    return statistics.median(times)


def main():
    arguments = peers.parser(__doc__).parse_args()
    peers.require_gpu(torch)
    data = peers.read(arguments)
    alloc, delete = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    device, stream = torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream
    alone = pair_us(lambda: 0, lambda _: None)
    print(f"an empty pair of calls takes Python {alone:.3f} us")
    for record in data["records"]:
        if record["algorithm"] != "polyphase" or not record["shape"].startswith("pair_"):
            continue
        size = int(record["shape"].removeprefix("pair_"))
        us = pair_us(lambda size=size: alloc(size, device, stream), delete)
        peers.add(record, "torch_caching_allocator", us)
        print(f"{record['shape']:16} {record['us_burst']:8.3f} us, PyTorch {us:8.3f}")
    data["torch"] = torch.__version__
    peers.write(arguments, data)


if __name__ == "__main__":
    main()
