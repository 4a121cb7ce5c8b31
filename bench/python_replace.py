#!/usr/bin/env python3
"""Times HiFi-GAN V1 in PyTorch before and after polyphase.torch.replace(), and adds the records to those of the suite "python".

    python_replace.py [--device cuda:0] [--json FILE] [--match REGEX] [--time-budget SECONDS] [--small]

Two copies of one model in one process: PyTorch's layers, and the same after one line. Cases: "replace_hifigan_v1_16x861" (direction forward:
16 mels of 861 frames under no_grad, without weight norm) and "replace_hifigan_v1_train" (direction step: forward, backward and AdamW of 16 x 32
frames, with weight norm; f16 and bf16 by autocast). Eager and, on a GPU, as a CUDA graph. A record: {case, direction, precision, mode, us_burst,
peers: {"torch": microseconds}}: as python_torch.py times them. The outputs of both must agree within the precision's rounding, and
every layer must have been replaced. FILE may exist: then its other records stay. --small: sizes that show that it works.
"""

import argparse
import copy
import json
import pathlib
import re

import torch
from torch import nn

import peers
import polyphase
import polyphase.torch as pt
import torch_networks
from peers_torch_networks import Step, captured
from python_torch import PRECISIONS, alternating_us

HERE = pathlib.Path(__file__).resolve().parent
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
    theirs = torch_networks.HifiGan(config).to(device, PRECISIONS[precision]).eval()
    ours = replaced(theirs, precision)
    x = torch.randn(size, device=device, dtype=PRECISIONS[precision])

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
    return [Step(each, x, PRECISIONS[precision], capturable, weight_norm=False) for each in (replaced(net, precision), net)]


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


def name_of(record):
    return record["case"], record["precision"], record["mode"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--match", default="", help="only records whose name 'case precision mode' this finds")
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
        for precision in ("fp32",) if device == "cpu" else PRECISIONS:
            if case.endswith("train") and precision == "f16":
                continue  # it needs a scaled loss
            for mode in ("eager",) if device == "cpu" else ("eager", "graph"):
                if not re.search(arguments.match, f"{case} {precision} {mode}") or budget.spent():
                    continue
                record = measure(case, precision, mode, device, arguments.small)
                new.append(record)
                print(f"{case:28}{precision:6}{record['direction']:9}{mode:7}{record['us_burst'] / 1e3:10.2f}"
                      f"{record['peers']['torch'] / 1e3:10.2f}{peers.ratio(record, 'torch'):8.2f}", flush=True)
                if arguments.json is not None:  # what was measured stays
                    kept = [r for r in whole["records"] if all(name_of(r) != name_of(n) for n in new)]
                    arguments.json.write_text(json.dumps({**whole, "records": kept + new}, indent=1) + "\n", encoding="utf-8")
    if budget.left_out:
        print(f"out of time: {budget.left_out} records left out")


if __name__ == "__main__":
    main()
