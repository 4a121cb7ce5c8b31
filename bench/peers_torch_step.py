#!/usr/bin/env python3
"""Times PyTorch on the steps of training_step's JSON, and compares.

    peers_torch_step.py OURS.json [--json MERGED.json] [--repeat R]

The same network, batches, device and threads. Writes OURS.json with "peers": {"torch_cpu" or "torch_eager": microseconds} in every record.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn

BATCHES = {"toy_32x512": (32, 512), "toy_4x64": (4, 64)}


def median_us(name, device, repeat):
    batch, length = BATCHES[name]
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv1d(1, 64, 7, padding=3), nn.LeakyReLU(0.1), nn.ConvTranspose1d(64, 64, 8, 4, 2), nn.LeakyReLU(0.1),
        nn.ConvTranspose1d(64, 32, 8, 4, 2), nn.LeakyReLU(0.1), nn.Conv1d(32, 1, 7, padding=3), nn.Tanh()).to(device)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    x = torch.randn(batch, 1, length, device=device)
    target = torch.rand(batch, 1, length * 16, device=device) - 0.5
    times = []
    for run in range(-3, repeat):
        start = time.perf_counter()
        loss = nn.functional.mse_loss(net(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        if run >= 0:
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", help="JSON written by training_step --json")
    parser.add_argument("--json", help="where to write the merged records")
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    with open(arguments.ours, encoding="utf-8") as file:
        ours = json.load(file)
    torch.set_num_threads(ours["threads"])
    peer = "torch_cpu" if ours["device"] == "cpu" else "torch_eager"
    print(f"{'batch':13}{'ms':>10}{'torch ms':>10}{'ratio':>8}")
    for record in ours["records"]:
        us = median_us(record["shape"], ours["device"], arguments.repeat)
        record["peers"] = {peer: us}
        print(f"{record['shape']:13}{record['us_burst'] / 1e3:10.3f}{us / 1e3:10.3f}{us / record['us_burst']:8.2f}")
    if arguments.json:
        ours["torch"] = torch.__version__
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(ours, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
