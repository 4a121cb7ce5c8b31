#!/usr/bin/env python3
"""Times published networks and PyTorch on the CPU. Writes docs/benchmarks/networks_cpu.json and the tables made from it.

    networks_cpu.py BUILD [--threads 2] [--rounds 3] [--networks REGEX] [--golden FOLDER] [--folder F]

BUILD is a build folder with bench/networks. Run it with a Python that has PyTorch. For each network it times our cases and then PyTorch's, and repeats
that `--rounds` times. The least time of each case counts. Streams and single frames are timed on one core too. The file contains the load average
before and after.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

import torch

from peers_torch_networks import MODELS

HERE = pathlib.Path(__file__).resolve().parent
RECORDS = HERE.parent / "docs" / "benchmarks"
FAMILIES = [name.removesuffix("_decode") for name in MODELS]
STREAMED = ["encodec_24k", "mimi", "vocos_24k", "qwen3_12hz"]


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def key(record):
    return tuple(record[name] for name in ("network", "precision", "direction", "mode"))


def fold(best, measured):
    """The least times of each record."""
    for record in measured["records"]:
        old = best.setdefault(key(record), record)
        for name in ("us_burst", "us_sustained"):
            old[name] = min(old[name], record[name])
        for peer, us in record.get("peers", {}).items():
            old.setdefault("peers", {})[peer] = min(us, old.get("peers", {}).get(peer, us))


def measure(arguments, threads, match, path):
    program = arguments.build / "bench" / "networks"
    subprocess.run([program, "--device", "cpu", "--threads", str(threads), "--match", match, "--json", path], check=True)
    golden = ["--golden", arguments.golden] if arguments.golden else []
    subprocess.run([sys.executable, HERE / "peers_torch_networks.py", path, *golden], check=True)
    return json.loads(path.read_text(encoding="utf-8"))


def part(arguments, threads, families, suffix, folder):
    """The file of these networks at this number of threads, of the cases whose name contains `suffix`; an empty list if there are none."""
    best, data = {}, {}
    for family in families:
        if arguments.networks not in family:
            continue
        for _ in range(arguments.rounds):
            data = measure(arguments, threads, f"^{family}_(.*_)?{suffix}", folder / "now.json")
            fold(best, data)
    if not best:
        return []
    path = folder / f"{threads}.json"
    path.write_text(json.dumps(data | {"records": list(best.values())}), encoding="utf-8")
    return [path]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--networks", default="", help="only those whose name has this in it")
    parser.add_argument("--golden", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=RECORDS, help="where networks_cpu.json goes; the tables are made in docs/benchmarks only")
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        parts = part(arguments, arguments.threads, FAMILIES, "", folder)
        if arguments.threads != 1:
            parts += part(arguments, 1, STREAMED, "(stream_|1x1frames)", folder)
        words = [f"cpu={cpu_name()}", f"load={before:.1f} before, {os.getloadavg()[0]:.1f} after", f"peer=PyTorch {torch.__version__}",
                 f"rounds={arguments.rounds}"]
        settings = [argument for word in words for argument in ("--set", word)]
        date = datetime.date.today().isoformat()
        subprocess.run([sys.executable, HERE / "report.py", "collect", "networks_cpu", *parts, "--commit", commit, "--date", date,
                        "--folder", arguments.folder, *settings], check=True)
    if arguments.folder == RECORDS:
        subprocess.run([sys.executable, HERE / "report.py", "tables"], check=True)


if __name__ == "__main__":
    main()
