#!/usr/bin/env python3
"""Times HiFi-GAN V1 in PyTorch before and after polyphase.torch.replace(), and adds the records to those of the suite "python".

    python_replace.py [--device cuda:0] [--json FILE] [--time-budget SECONDS] [--small]

Two copies of one model in one process: PyTorch's layers, and the same after one line. Cases: "replace_hifigan_v1_16x861" (direction forward:
16 mels of 861 frames under no_grad, without weight norm) and "replace_hifigan_v1_train" (direction step: forward, backward and AdamW of 16 x 32
frames, with weight norm; f16 and bf16 by autocast). Eager and, on a GPU, as a CUDA graph. A record: {case, direction, precision, mode, us_burst,
peers: {"torch": microseconds}}: the medians of bursts, each of both in turn. The outputs of both must agree within the precision's rounding, and
every layer must have been replaced. FILE may exist: then its other records stay. --small: sizes that show that it works.
"""

import argparse
import copy
import json
import pathlib
import statistics
import time

import torch
from torch import nn

import peers
import polyphase
import polyphase.torch as pt
import torch_networks
from peers_torch_networks import Step, captured

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
BOUNDS = {"fp32": 1e-4, "tf32": 2e-2, "f16": 2e-2, "bf16": 0.15}  # of the peak, after 98 layers


def set_tf32(precision):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def replaced(net, precision):
    net = copy.deepcopy(net)
    report = pt.replace(net, precision="tf32" if precision == "tf32" else "fp32")
    if report.left:
        raise SystemExit(f"python_replace.py: {report}")
    return net


def forwards(config, size, precision, device):
    torch.manual_seed(1)
    theirs = torch_networks.HifiGan(config).to(device, DTYPES[precision]).eval()
    ours = replaced(theirs, precision)
    x = torch.randn(size, device=device, dtype=DTYPES[precision])

    def work_of(net):
        def work():
            with torch.no_grad():
                return net(x)
        return work
    works = [work_of(ours), work_of(theirs)]
    y, wanted = (work().double() for work in works)
    difference = ((y - wanted).abs().max() / wanted.abs().max()).item()
    if not difference <= BOUNDS[precision]:
        raise SystemExit(f"python_replace.py: {precision}: outputs differ by {difference:.1e} of the peak")
    return works


def steps(config, size, precision, device, capturable):
    torch.manual_seed(1)
    net = torch_networks.HifiGan(config).to(device)
    for module in net.modules():
        if isinstance(module, (nn.Conv1d, nn.ConvTranspose1d)):
            nn.utils.parametrizations.weight_norm(module)
    x = torch.randn(size, device=device)
    return [Step(each, x, DTYPES[precision], capturable, weight_norm=False) for each in (replaced(net, precision), net)]


def burst_us(work, device, count):
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        work()
    if device != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6 / count


def alternating_us(works, device):
    """The medians of five bursts of each, of at least 30 ms, in turn."""
    first = max(min(burst_us(work, device, 1) for _ in range(2)) for work in works)
    count = max(1, int(3e4 / first))
    times = [[] for _ in works]
    for _ in range(5):
        for work, of_work in zip(works, times):
            of_work.append(burst_us(work, device, count))
    return [statistics.median(of_work) for of_work in times]


def measure(case, precision, mode, device, small):
    config = json.loads((HERE / "networks" / "hifigan_v1.json").read_text(encoding="utf-8"))
    set_tf32(precision)
    if case == "replace_hifigan_v1_16x861":
        works, direction = forwards(config, (1, 80, 8) if small else (16, 80, 861), precision, device), "forward"
    else:
        works, direction = steps(config, (1, 80, 8) if small else (16, 80, 32), precision, device, mode == "graph"), "step"
    if mode == "graph":
        works = [captured(work) for work in works]
    ours, theirs = alternating_us(works, device)
    return {"case": case, "direction": direction, "precision": precision, "mode": mode, "us_burst": ours, "peers": {"torch": theirs}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--time-budget", type=float, help="seconds after which no new case is begun")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    device, budget, new = arguments.device, peers.Budget(arguments.time_budget), []
    if device != "cpu":
        peers.require_gpu(torch)
    whole = {"suite": "python", "device": device if device == "cpu" else torch.cuda.get_device_name(device), "torch": torch.__version__,
             "polyphase": polyphase.__version__, "threads": torch.get_num_threads(), "records": []}
    if arguments.json is not None and arguments.json.is_file():
        whole["records"] = json.loads(arguments.json.read_text(encoding="utf-8"))["records"]
    print(f"{'case':28}{'':6}{'':9}{'':7}{'ms':>10}{'torch ms':>10}{'ratio':>8}")
    for case in ("replace_hifigan_v1_16x861", "replace_hifigan_v1_train"):
        for precision in ("fp32",) if device == "cpu" else DTYPES:
            if case.endswith("train") and precision == "f16":
                continue  # it needs a scaled loss
            for mode in ("eager",) if device == "cpu" else ("eager", "graph"):
                if budget.spent():
                    continue
                record = measure(case, precision, mode, device, arguments.small)
                new.append(record)
                print(f"{case:28}{precision:6}{record['direction']:9}{mode:7}{record['us_burst'] / 1e3:10.2f}"
                      f"{record['peers']['torch'] / 1e3:10.2f}{peers.ratio(record, 'torch'):8.2f}", flush=True)
                if arguments.json is not None:  # what was measured stays
                    kept = [r for r in whole["records"] if all(r["case"] != n["case"] for n in new)]
                    arguments.json.write_text(json.dumps({**whole, "records": kept + new}, indent=1) + "\n", encoding="utf-8")
    if budget.left_out:
        print(f"out of time: {budget.left_out} records left out")


if __name__ == "__main__":
    main()
