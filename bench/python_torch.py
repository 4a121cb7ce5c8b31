#!/usr/bin/env python3
"""Times polyphase.torch next to torch's own layers in one process, and writes the records of the suite "python".

    python_torch.py [--device cpu|cuda:0] [--json FILE] [--match REGEX] [--time-budget SECONDS]

Cases: `tiny`, where only the host's time counts; the published complaints (docs/python.md) and the layers of vocoders. Each is timed in the
directions forward (under no_grad) and step (forward and backward), eager, compiled and, on a GPU, as a CUDA graph, in fp32 and on a GPU also
in tf32, f16 and bf16. A record: {case, direction, precision, mode, us_burst, peers: {"torch": microseconds}, problem}. us_burst is the median
of bursts: on a GPU from event to event, behind a launch that is not timed; on the CPU of calls.
"""

import argparse
import json
import pathlib
import re
import statistics
import time

import torch
from torch import nn

import peers
import polyphase
import polyphase.torch as pt

# C_in, C_out, K, S, P, OP, G, N, L, D (1)
CASES = {
    "tiny": (4, 4, 3, 2, 0, 0, 1, 1, 4),
    "pytorch_41382": (64, 32, 4, 2, 1, 0, 1, 1, 40000),
    "pytorch_47341": (512, 512, 6, 3, 2, 1, 1, 16, 32),
    "pytorch_47341_depthwise": (512, 512, 6, 3, 2, 1, 512, 16, 32),
    "pytorch_120982": (1026, 1, 1024, 256, 0, 0, 1, 1, 224),
    "candle_3383_1": (2048, 1024, 20, 10, 5, 0, 1, 1, 250),
    "candle_3383_2": (1024, 512, 12, 6, 3, 0, 1, 1, 2500),
    "candle_3383_3": (512, 256, 8, 4, 2, 0, 1, 1, 15000),
    "candle_3383_4": (256, 128, 8, 4, 2, 0, 1, 1, 60000),
    "candle_3383_5": (128, 128, 4, 2, 1, 0, 1, 1, 240000),
    "hifigan_up0": (512, 256, 16, 8, 4, 0, 1, 16, 32),
    "hifigan_up2": (128, 64, 4, 2, 1, 0, 1, 16, 2048),
    "kernelbench_64": (128, 128, 3, 1, 0, 0, 1, 64, 65536),
    # of bench/shapes.hpp, where A is the case above
    "bench_B": (32, 64, 3, 2, 1, 0, 1, 16, 131072, 2),
    "bench_C": (32, 64, 5, 1, 0, 0, 1, 32, 131072, 3),
    "bench_hifigan_up0": (512, 256, 16, 8, 4, 0, 1, 16, 256),
    "bench_hifigan_up1": (256, 128, 16, 8, 4, 0, 1, 16, 2048),
    "bench_hifigan_up2": (128, 64, 4, 2, 1, 0, 1, 16, 16384),
    "bench_hifigan_up3": (64, 32, 4, 2, 1, 0, 1, 16, 32768),
    "bench_depthwise": (256, 256, 12, 2, 5, 0, 256, 8, 16384),
}
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def burst_us(work, device, count):
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(count):
            work()
        return (time.perf_counter() - start) * 1e6 / count
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    work()
    begin.record()
    for _ in range(count):
        work()
    end.record()
    end.synchronize()
    time.sleep(min(2e-3 * begin.elapsed_time(end), 0.1))
    return begin.elapsed_time(end) * 1e3 / count


def alternating_us(works, device):
    """The median of seven bursts of each, of about 20 ms, in turn."""
    first = [burst_us(work, device, 1) for work in works]
    first = [burst_us(work, device, 3) for work in works]
    count = max(1, min(1000, int(2e4 / max(first))))
    times = [[] for _ in works]
    for _ in range(7):
        for work, of_work in zip(works, times):
            of_work.append(burst_us(work, device, count))
    return [statistics.median(of_work) for of_work in times]


def graph_of(work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()

    def replay():
        graph.replay()
    replay.work = work  # the graph reads its tensors, and the next one's capture empties torch's cache
    return replay


def work_of(layer, x, direction, mode):
    call = torch.compile(layer, fullgraph=True) if mode == "compiled" else layer
    if direction == "forward":
        def work():
            with torch.no_grad():
                call(x)
    else:
        x = x.clone().requires_grad_()
        gradient = torch.randn_like(layer(x))
        wanted = [x, *layer.parameters()]

        def work():
            torch.autograd.grad(call(x), wanted, gradient)
    return graph_of(work) if mode == "graph" else work


def measure(name, case, precision, direction, mode, device):
    C_in, C_out, K, S, P, OP, G, N, L, D = (*case, 1)[:10]
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    made = []
    for layers, named in ((pt, {"precision": "tf32" if precision == "tf32" else "fp32"}), (nn, {})):
        layer = layers.ConvTranspose1d(C_in, C_out, K, S, P, OP, G, dilation=D, **named).to(device, PRECISIONS[precision])
        made.append(work_of(layer, torch.randn(N, C_in, L, device=device, dtype=PRECISIONS[precision]), direction, mode))
    ours, theirs = alternating_us(made, device)
    problem = {"N": N, "C_in": C_in, "C_out": C_out, "L_in": L, "K": K, "S": S, "P_l": P, "P_r": P, "OP": OP, "D": D, "G": G}
    return {"case": name, "direction": direction, "precision": precision, "mode": mode, "us_burst": ours,
            "peers": {"torch": theirs}, "problem": problem}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--match", default="", help="only records whose name 'case precision direction mode' this finds")
    parser.add_argument("--time-budget", type=float, help="seconds after which no new case is begun")
    arguments = parser.parse_args()
    device, budget, records = arguments.device, peers.Budget(arguments.time_budget), []
    if device != "cpu":
        peers.require_gpu(torch)
    modes = ("eager", "compiled") if device == "cpu" else ("eager", "graph", "compiled")
    whole = {"suite": "python", "device": device if device == "cpu" else torch.cuda.get_device_name(device), "torch": torch.__version__,
             "polyphase": polyphase.__version__, "threads": torch.get_num_threads(), "records": records}
    print(f"{'case':26}{'':6}{'':9}{'':10}{'us':>10}{'torch us':>10}{'ratio':>8}")
    for name, case in CASES.items():
        for precision in ("fp32",) if device == "cpu" else PRECISIONS:
            for direction in ("forward", "step"):
                for mode in modes:
                    if not re.search(arguments.match, f"{name} {precision} {direction} {mode}") or budget.spent():
                        continue
                    record = measure(name, case, precision, direction, mode, device)
                    records.append(record)
                    print(f"{name:26}{precision:6}{direction:9}{mode:10}{record['us_burst']:10.1f}{record['peers']['torch']:10.1f}"
                          f"{peers.ratio(record, 'torch'):8.2f}", flush=True)
                    if arguments.json is not None:  # what was measured stays
                        arguments.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    if budget.left_out:
        print(f"out of time: {budget.left_out} records left out")
    if not records:
        raise SystemExit(f"python_torch.py: --match '{arguments.match}' finds no record, or the time was too short")


if __name__ == "__main__":
    main()
