#!/usr/bin/env python3
"""Times the program cold_start from its start to the line with its first result, and the same program in PyTorch.

    cold_start.py PROGRAM [--device cuda:0] [--repeat R] [--json FILE]

The median of R starts after one that is not counted (it reads the files from disk). PyTorch is omitted if python3 has none that sees the
device. Exits with 1 if the program fails or its result is wrong.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

TORCH = """
import sys, torch
from torch import nn
torch.manual_seed(1)
net = nn.Sequential(nn.Conv1d(1, 64, 7, padding=3), nn.LeakyReLU(0.1), nn.ConvTranspose1d(64, 32, 8, 4, 2), nn.LeakyReLU(0.1),
                    nn.Conv1d(32, 1, 7, padding=3), nn.Tanh()).to(sys.argv[1])
with torch.no_grad():
    print("first result:", net(torch.randn(4, 1, 64).to(sys.argv[1])).mean().item(), flush=True)
"""


def first_result_us(command):
    """Seconds from the start to the first line. The program must then end without an error."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        us = (time.perf_counter() - start) * 1e6
        _, errors = process.communicate()
    if process.returncode != 0 or not line.startswith("first result"):
        raise RuntimeError((errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    return us


def median_us(command, repeat):
    first_result_us(command)
    return statistics.median(first_result_us(command) for _ in range(repeat))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        us = median_us([arguments.program, arguments.device], arguments.repeat)
    except (OSError, RuntimeError) as error:
        print(f"cold_start.py: {error}", file=sys.stderr)
        return 1
    record = {"suite": "cold_start", "shape": "first_forward", "algorithm": "polyphase", "us_burst": us, "peers": {}}
    print(f"polyphase {us / 1e6:.3f} s")
    try:
        record["peers"]["torch"] = median_us([sys.executable, "-c", TORCH, arguments.device], min(arguments.repeat, 3))
        print(f"PyTorch   {record['peers']['torch'] / 1e6:.3f} s")
    except RuntimeError as error:
        print(f"no PyTorch: {error}")
    if arguments.json:
        data = {"suite": "cold_start", "device": arguments.device, "records": [record]}
        arguments.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
