#!/usr/bin/env python3
"""Predicts the time of a data-parallel training step on more GPUs than were measured (docs/scaling.md, "Cost model").

usage: scaling_model.py FILE.json [--network hifigan_v1_gan] [--precision fp32] [--bytes 339e6] [--backward 0.67]
           [--bucket 25e6] [--pair-gb-s 300] [--gpus-per-host 8] [--host-gb-s 50] [--latency-us 10]

FILE.json has records of suite "scaling" of 1 and 2 GPUs of one host (bench/report.py collect). From them come the step of one GPU and what two
GPUs lose in addition: the kernels of an all-reduce take multiprocessors and memory from those of the backward pass, and ranks wait for the slower one.
That loss is taken to be the same for any number of GPUs. --pair-gb-s is the bandwidth between GPUs of a host; 300 GB/s is what PyTorch's NCCL
reaches on two H200 (340 MB in 1.13 ms). --host-gb-s, the bandwidth of a GPU to other hosts, and --latency-us, of one message, cannot come from
one host.
"""
import argparse
import json
import sys


def all_reduce_seconds(bytes_, gpus, bandwidth, latency):
    """A ring: every GPU sends 2 (W - 1)/W of the bytes in 2 (W - 1) messages."""
    return 2 * (gpus - 1) / gpus * bytes_ / bandwidth + 2 * (gpus - 1) * latency


def step_seconds(step, comm, last, backward):
    """Communication is hidden behind the backward pass, but for the last bucket, which is full when the pass ends."""
    return step + max(last, comm - backward * step)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--network", default="hifigan_v1_gan")
    parser.add_argument("--precision", default="fp32")
    for name, default in (("bytes", 339e6), ("backward", 0.67), ("bucket", 25e6), ("pair-gb-s", 300), ("gpus-per-host", 8), ("host-gb-s", 50), ("latency-us", 10)):
        parser.add_argument("--" + name, type=float, default=default)
    args = parser.parse_args()
    with open(args.file, encoding="utf-8") as file:
        records = json.load(file)["records"]
    seconds = {r["gpus"]: r["us_sustained"] / 1e6 for r in records
               if r.get("suite", "scaling") == "scaling" and r.get("network") == args.network and r.get("precision") == args.precision}
    if not {1, 2} <= seconds.keys():
        sys.exit(f"scaling_model: {args.file}: expected records of {args.network} {args.precision} on 1 and 2 GPUs, got {sorted(seconds)}")
    latency = args.latency_us / 1e6

    def modelled(gpus):
        if gpus == 1:
            return 0, seconds[1]
        bandwidth = args.pair_gb_s * 1e9 if gpus <= args.gpus_per_host else min(args.pair_gb_s, args.host_gb_s) * 1e9
        comm, last = (all_reduce_seconds(size, gpus, bandwidth, latency) for size in (args.bytes, args.bucket))
        return comm, step_seconds(seconds[1], comm, last, args.backward)

    loss = max(seconds[2] - modelled(2)[1], 0)
    print(f"step of one GPU {seconds[1] * 1e3:.1f} ms, loss of several {loss * 1e3:.2f} ms")
    print("gpus  all-reduce ms  step ms  efficiency %")
    for exponent in range(11):
        gpus = 2**exponent
        comm, step = modelled(gpus)
        step += loss if gpus > 1 else 0
        print(f"{gpus:4d}  {comm * 1e3:13.2f}  {step * 1e3:7.1f}  {100 * seconds[1] / step:12.1f}")


if __name__ == "__main__":
    main()
