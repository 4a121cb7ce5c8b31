#!/usr/bin/env python3
"""Times PyTorch on the steps of training_step's JSON, and compares.

    peers_torch_step.py OURS.json [--json MERGED.json] [--repeat R]

The same network, batches, device, threads and method of timing: on the CPU each step is waited for; on a GPU the median of R groups of 20
steps, each group waited for once. Adds "torch_cpu", "torch_eager" or "torch_graph" (of a whole step, capturable Adam) to the peers.
"""

import statistics
import time

import torch
from torch import nn

import peers

BATCHES = {"toy_32x512": (32, 512), "toy_4x64": (4, 64)}
GROUP = 20


class Step:
    def __init__(self, name, device, graph):
        batch, length = BATCHES[name]
        torch.manual_seed(1)
        self.net = nn.Sequential(
            nn.Conv1d(1, 64, 7, padding=3), nn.LeakyReLU(0.1), nn.ConvTranspose1d(64, 64, 8, 4, 2), nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(64, 32, 8, 4, 2), nn.LeakyReLU(0.1), nn.Conv1d(32, 1, 7, padding=3), nn.Tanh()).to(device)
        # On a GPU PyTorch's fastest Adam: one kernel for all parameters.
        options = {"fused": True, "capturable": graph} if device != "cpu" else {}
        self.optimizer = torch.optim.Adam(self.net.parameters(), 1e-3, **options)
        self.x = torch.randn(batch, 1, length, device=device)
        self.target = torch.rand(batch, 1, length * 16, device=device) - 0.5

    def __call__(self):
        loss = nn.functional.mse_loss(self.net(self.x), self.target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def captured(self):
        """A function that replays the whole step."""
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self()
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self()
        return graph.replay


def cpu_us(step, repeat):
    times = []
    for run in range(-3, repeat):
        start = time.perf_counter()
        step().item()
        if run >= 0:
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def gpu_us(step, repeat):
    times = []
    for run in range(-2, repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(GROUP):
            step()
        torch.cuda.synchronize()
        if run >= 0:
            times.append((time.perf_counter() - start) * 1e6 / GROUP)
    return statistics.median(times)


def measure(record, device, repeat):
    if device == "cpu":
        return "torch_cpu", cpu_us(Step(record["shape"], device, False), repeat)
    if record["algorithm"] == "graph":
        return "torch_graph", gpu_us(Step(record["shape"], device, True).captured(), repeat)
    return "torch_eager", gpu_us(Step(record["shape"], device, False), repeat)


def main():
    parser = peers.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    ours = peers.read(arguments)
    if ours["device"] != "cpu":
        peers.require_gpu(torch)
        torch.backends.cudnn.benchmark = True
    torch.set_num_threads(ours["threads"])
    print(f"{'batch':13}{'way':10}{'ms':>10}{'torch ms':>10}{'ratio':>8}")
    for record in ours["records"]:
        name, us = measure(record, ours["device"], arguments.repeat)
        peers.add(record, name, us)
        print(f"{record['shape']:13}{record['algorithm']:10}{record['us_burst'] / 1e3:10.3f}{us / 1e3:10.3f}{us / record['us_burst']:8.2f}")
    ours["torch"] = torch.__version__
    peers.write(arguments, ours)


if __name__ == "__main__":
    main()
