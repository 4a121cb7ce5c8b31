"""Functions for the scripts that time peers: reading and writing the file of our results, tables, PyTorch's GPU timing."""

import argparse
import json
import math
import pathlib
import time


def parser(doc):
    """Adds the arguments OURS.json and --json for the file with the peers; without --json OURS.json is overwritten."""
    result = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("ours", type=pathlib.Path, help="JSON written by our benchmark")
    result.add_argument("--json", type=pathlib.Path, help="where to write the records with the peers (default: back)")
    return result


def read(arguments):
    return json.loads(arguments.ours.read_text(encoding="utf-8"))


def write(arguments, data):
    """Written as a whole or not at all, because the file may be the only copy of our results."""
    path = arguments.json or arguments.ours
    new = path.with_suffix(".new")
    new.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def add(record, name, us):
    record.setdefault("peers", {})[name] = us


def ratio(record, name):
    return record["peers"][name] / record["us_burst"]


def print_means(ratios):
    """`ratios`: lists by name."""
    for name, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"{name}: geometric mean {mean:.2f}, least {min(values):.2f}")


class Budget:
    """Seconds after which no new case begins; None: no limit."""

    def __init__(self, seconds):
        self.end = None if seconds is None else time.perf_counter() + seconds
        self.left_out = 0

    def spent(self):
        over = self.end is not None and time.perf_counter() >= self.end
        self.left_out += over
        return over


def require_gpu(torch):
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU here")
