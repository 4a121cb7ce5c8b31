#!/usr/bin/env python3
"""Times PyTorch's conv_transpose1d on the CPU on the cases of `polyphase bench --json`, and compares.

    peers_torch_cpu.py OURS.json [--json MERGED.json] [--repeat R]

Same shapes, threads and rotation over sets of arrays as in OURS.json; operands in the user's layout, weights not prepacked. PyTorch
allocates its results, as it does for its users. dgrad and wgrad are timed separately, through aten::convolution_backward. Adds "peers":
{"torch_cpu": microseconds} to every record, and prints a table with the geometric mean of the ratios per direction.
"""

import statistics
import time

import torch

import peers


def runner(problem, direction, x, w, dy):
    """A function that computes one direction once."""
    # PyTorch has no such layer if the two paddings differ; no shape in the list has that.
    assert problem["P_l"] == problem["P_r"]
    stride, padding, dilation = [problem["S"]], [problem["P_l"]], [problem["D"]]
    output_padding, groups = [problem["OP"]], problem["G"]
    if direction == "forward":
        return lambda: torch.conv_transpose1d(x, w, None, stride, padding, output_padding, groups, dilation)
    mask = [direction == "dgrad", direction == "wgrad", False]
    return lambda: torch.ops.aten.convolution_backward(
        dy, x, w, None, stride, padding, dilation, True, output_padding, groups, mask)


def median_us(record, repeat):
    p = record["problem"]
    sets = []
    for _ in range(record["rotating_sets"]):
        x = torch.randn(p["N"], p["C_in"], p["L_in"])
        w = torch.randn(p["C_in"], p["C_out"] // p["G"], p["K"])
        dy = torch.randn(p["N"], p["C_out"], p["L_out"])
        sets.append(runner(p, record["direction"], x, w, dy))
    times = []
    for run in range(-2, repeat):
        start = time.perf_counter()
        sets[run % len(sets)]()
        if run >= 0:
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    ours = peers.read(arguments)
    torch.set_num_threads(ours["threads"])
    print(f"PyTorch {torch.__version__} against {ours['isa']}, {ours['threads']} threads")
    print(f"{'shape':13}{'direction':10}{'ms':>10}{'torch ms':>10}{'GFLOP/s':>10}{'torch':>8}{'ratio':>8}")
    ratios = {}
    with torch.no_grad():
        for record in ours["records"]:
            torch_us = median_us(record, arguments.repeat)
            peers.add(record, "torch_cpu", torch_us)
            ratio = peers.ratio(record, "torch_cpu")
            ratios.setdefault(record["direction"], []).append(ratio)
            print(f"{record['shape']:13}{record['direction']:10}{record['us_burst'] / 1e3:10.3f}{torch_us / 1e3:10.3f}"
                  f"{record['gflops']:10.1f}{record['gflops'] / ratio:8.1f}{ratio:8.2f}", flush=True)
    peers.print_means(ratios)
    ours["torch"] = torch.__version__
    peers.write(arguments, ours)


if __name__ == "__main__":
    main()
