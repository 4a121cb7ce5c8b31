#!/usr/bin/env python3
"""Times PyTorch's ConvTranspose1d on a GPU on the shapes of a result of bench/conv_transpose1d, and adds its times to the file.

    peers_torch_cuda.py RESULT.json

Adds "torch_fp32", "torch_tf32", "torch_bf16" or "torch_f16" to the peers of every record, in microseconds: bursts of 12 launches between
device events, the median of five, cuDNN's own search on.
"""

import json
import pathlib
import statistics
import sys

import torch

PRECISIONS = {"ieee": (torch.float32, False, "fp32"), "fp32": (torch.float32, False, "fp32"), "tf32": (torch.float32, True, "tf32"),
              "bf16": (torch.bfloat16, False, "bf16"), "f16": (torch.float16, False, "f16"), "f64": (torch.float64, False, "f64")}


def time_launches(launch, sets):
    for i in range(3):
        launch(sets[i % len(sets)])
    bursts = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for i in range(12):
            launch(sets[i % len(sets)])
        end.record()
        end.synchronize()
        bursts.append(begin.elapsed_time(end) * 1e3 / 12)
    return statistics.median(bursts)


def make_sets(p, dtype):
    elements = p["N"] * (p["C_in"] * p["L_in"] + p["C_out"] * p["L_out"])
    count = max(1, min(16, -(-3 * torch.cuda.get_device_properties(0).L2_cache_size // (elements * dtype.itemsize))))
    make = lambda *shape: torch.randn(shape, device="cuda", dtype=dtype)
    return [(make(p["N"], p["C_in"], p["L_in"]), make(p["C_in"], p["C_out"] // p["G"], p["K"]), make(p["N"], p["C_out"], p["L_out"]))
            for _ in range(count)]


def measure(record):
    p = record["problem"]
    dtype, tf32, name = PRECISIONS[record["precision"]]
    torch.backends.cudnn.allow_tf32 = tf32
    if p["P_l"] != p["P_r"]:
        return None
    arguments = ([p["S"]], [p["P_l"]], [p["D"]], True, [p["OP"]], p["G"])
    which = {"dgrad": [True, False, False], "wgrad": [False, True, False]}
    if record["direction"] == "forward":
        launch = lambda s: torch.convolution(s[0], s[1], None, *arguments)
    else:
        mask = which[record["direction"]]
        launch = lambda s: torch.ops.aten.convolution_backward(s[2], s[0], s[1], None, *arguments, mask)
    with torch.no_grad():
        return f"torch_{name}", time_launches(launch, make_sets(p, dtype))


def main():
    path = pathlib.Path(sys.argv[1])
    data = json.loads(path.read_text())
    torch.backends.cudnn.benchmark = True
    known = {}
    for record in data["records"]:
        key = (record["shape"], record["direction"], record["precision"])
        if key not in known:
            known[key] = measure(record)
            torch.cuda.empty_cache()
            print(*key, known[key], flush=True)
        if known[key]:
            record.setdefault("peers", {})[known[key][0]] = known[key][1]
    data["torch"] = torch.__version__
    path.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
