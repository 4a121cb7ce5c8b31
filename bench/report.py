#!/usr/bin/env python3
"""Turns benchmark results into docs/benchmarks/NAME.json and the tables of docs/benchmarks.md.

    report.py collect NAME --commit C --date D [--set KEY=VALUE ...] RESULT.json ...
    report.py tables

`collect` joins the records of several programs' --json files into docs/benchmarks/NAME.json (cpu, h200, ...), with what they
were measured on. `tables` writes every table of docs/benchmarks.md anew from those files, between its markers.
"""

import argparse
import json
import math
import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"


def collect(arguments):
    result = {"commit": arguments.commit, "date": arguments.date}
    result.update(pair.split("=", 1) for pair in arguments.set)
    result["records"] = []
    for name in arguments.results:
        data = json.loads(pathlib.Path(name).read_text())
        shared = {key: data[key] for key in ("device", "isa", "threads", "torch") if key in data}
        for record in data["records"]:
            result["records"].append({"suite": data["suite"], **record, **shared})
    path = DOCS / "benchmarks" / f"{arguments.name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path}: {len(result['records'])} records")


def table(header, rows):
    """A Markdown table with aligned columns; the first column is text, the others numbers."""
    lines = [header] + rows
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    render = lambda line: "| " + " | ".join(
        cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))) + " |"
    rule = "|" + "|".join("-" * (width + 2) if i == 0 else "-" * (width + 1) + ":" for i, width in enumerate(widths)) + "|"
    return "\n".join([render(header), rule] + [render(row) for row in rows])


def ratio(record, peer):
    return record["peers"][peer] / record["us_burst"]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def cpu_convolutions(data):
    records = [r for r in data["records"] if r["suite"] == "conv_transpose1d"]
    shapes = list(dict.fromkeys(r["shape"] for r in records))
    by_key = {(r["shape"], r["direction"]): r for r in records}
    rows = []
    for shape in shapes:
        row = [shape]
        for direction in ("forward", "dgrad", "wgrad"):
            record = by_key[shape, direction]
            row += [f"{record['us_burst'] / 1e3:.2f}", f"{record['gflops']:.0f}", f"{ratio(record, 'torch_cpu'):.2f}"]
        rows.append(row)
    mean = ["geometric mean"]
    for direction in ("forward", "dgrad", "wgrad"):
        mean += ["", "", f"{geometric_mean([ratio(by_key[s, direction], 'torch_cpu') for s in shapes]):.2f}"]
    header = ["shape"] + [f"{d} {c}" for d in ("forward", "dgrad", "wgrad") for c in ("ms", "GFLOP/s", "x PyTorch")]
    return table(header, rows + [mean])


def cpu_steps(data):
    rows = [[r["shape"], f"{r['us_burst'] / 1e3:.2f}", f"{r['peers']['torch_cpu'] / 1e3:.2f}", f"{ratio(r, 'torch_cpu'):.2f}"]
            for r in data["records"] if r["suite"] == "training_step"]
    return table(["batch", "ms", "PyTorch ms", "x PyTorch"], rows)


def gpu_convolutions(data):
    rows = [[r["shape"], r["direction"], r["precision"], r["algorithm"], f"{r['us_burst'] / 1e3:.3f}", f"{r['us_sustained'] / 1e3:.3f}",
             f"{100 * r['roofline_us'] / r['us_burst']:.0f}", f"{r['error']:.1e}"]
            for r in data["records"] if r["suite"] == "conv_transpose1d"]
    return table(["shape", "direction", "precision", "algorithm", "ms burst", "ms sustained", "% of roofline", "error"], rows)


TABLES = {
    "cpu_convolutions": ("cpu", cpu_convolutions),
    "cpu_steps": ("cpu", cpu_steps),
    "gpu_convolutions": ("h200", gpu_convolutions),
}


def provenance(data):
    where = ", ".join(f"{key} {value}" for key, value in data.items() if key not in ("records",))
    return f"*{where}*"


def tables(_):
    for page in (DOCS / "benchmarks.md", DOCS.parent / "README.md"):
        text = page.read_text()
        for name, (source, render) in TABLES.items():
            data = json.loads((DOCS / "benchmarks" / f"{source}.json").read_text())
            block = f"<!-- table {name} -->\n{provenance(data)}\n\n{render(data)}\n<!-- end -->"
            text = re.sub(rf"<!-- table {name} -->.*?<!-- end -->", lambda _, block=block: block, text, flags=re.S)
        page.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("collect")
    command.add_argument("name")
    command.add_argument("results", nargs="+")
    command.add_argument("--commit", required=True)
    command.add_argument("--date", required=True)
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    command.set_defaults(run=collect)
    commands.add_parser("tables").set_defaults(run=tables)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
