#!/usr/bin/env python3
"""Times PyTorch's ConvTranspose1d on a GPU on the cases of bench/conv_transpose1d's JSON, and adds its times to the file.

    peers_torch_cuda.py OURS.json [--json MERGED.json] [--time-budget SECONDS]

Adds "torch_fp32", "torch_tf32", "torch_bf16" or "torch_f16" to the peers of every record, in microseconds: bursts of 12 launches between
device events, the median of five (three if one takes more than 100 ms), sets of arrays larger than the L2, with cuDNN's own search.
"step" is forward and then both gradients in one backward call, as in autograd.
"""

import statistics
import time

import torch

import peers

PRECISIONS = {"ieee": (torch.float32, False, "fp32"), "fp32": (torch.float32, False, "fp32"), "tf32": (torch.float32, True, "tf32"),
              "bf16": (torch.bfloat16, False, "bf16"), "f16": (torch.float16, False, "f16"), "f64": (torch.float64, False, "f64")}
MASKS = {"dgrad": [True, False, False], "wgrad": [False, True, False], "step": [True, True, False]}


def burst_us(launch, sets, count):
    """After a launch that is not timed, and followed by a rest, as in bench/gpu_timing.cpp."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    launch(sets[0])
    begin.record()
    for i in range(1, count + 1):
        launch(sets[i % len(sets)])
    end.record()
    end.synchronize()
    time.sleep(min(2e-3 * begin.elapsed_time(end), 0.1))
    return begin.elapsed_time(end) * 1e3 / count


def time_launches(launch, sets):
    rounds = 3 if burst_us(launch, sets, 2) * 12 > 1e5 else 5
    return statistics.median(burst_us(launch, sets, 12) for _ in range(rounds))


def make_sets(p, dtype):
    elements = p["N"] * (p["C_in"] * p["L_in"] + p["C_out"] * p["L_out"])
    count = max(1, min(16, -(-3 * torch.cuda.get_device_properties(0).L2_cache_size // (elements * dtype.itemsize))))
    make = lambda *shape: torch.randn(shape, device="cuda", dtype=dtype)
    return [(make(p["N"], p["C_in"], p["L_in"]), make(p["C_in"], p["C_out"] // p["G"], p["K"]), make(p["N"], p["C_out"], p["L_out"]))
            for _ in range(count)]


def measure(record):
    """(peer's name, microseconds); None if PyTorch has no such layer or refuses it."""
    p = record["problem"]
    dtype, tf32, name = PRECISIONS[record["precision"]]
    torch.backends.cudnn.allow_tf32 = tf32
    if p["P_l"] != p["P_r"]:
        return None
    settings = ([p["S"]], [p["P_l"]], [p["D"]], True, [p["OP"]], p["G"])
    forward = lambda s: torch.convolution(s[0], s[1], None, *settings)
    backward = lambda s: torch.ops.aten.convolution_backward(s[2], s[0], s[1], None, *settings, MASKS[record["direction"]])
    launch = {"forward": forward, "step": lambda s: (forward(s), backward(s))}.get(record["direction"], backward)
    try:
        with torch.no_grad():
            return f"torch_{name}", time_launches(launch, make_sets(p, dtype))
    except RuntimeError as error:
        print(f"{record['shape']} {record['direction']} {name}: {str(error).splitlines()[0]}")
        return None


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--time-budget", type=float)
    arguments = parser.parse_args()
    peers.require_gpu(torch)
    data = peers.read(arguments)
    data["torch"] = torch.__version__
    torch.backends.cudnn.benchmark = True
    budget = peers.Budget(arguments.time_budget)
    known = {}
    for record in data["records"]:
        key = (record["shape"], record["direction"], record["precision"])
        if key not in known:
            if budget.spent():
                known[key] = None
                continue
            known[key] = measure(record)
            torch.cuda.empty_cache()
            if known[key]:
                print(*key, known[key][0], f"{known[key][1]:.1f} us", flush=True)
        if known[key]:
            peers.add(record, *known[key])
    if budget.left_out:
        print(f"out of time: {budget.left_out} cases left out")
    peers.write(arguments, data)


if __name__ == "__main__":
    main()
