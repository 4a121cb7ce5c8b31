#!/usr/bin/env python3
"""Turns benchmark results into docs/benchmarks/NAME.json and the tables of README.md, docs/*.md and docs/benchmarks/*.md.

    report.py collect NAME --commit C --date D [--set KEY=VALUE ...] [--folder F] [--checks CHECKS.tsv] [RESULT.json ...]
    report.py adopt NAME.json [NAME.json ...]
    report.py update NAME --commit C --date D RESULT.json [RESULT.json ...]
    report.py tables
    report.py pictures
    report.py goals NAME.json [--picture PNG]

`collect` joins the records of several programs' --json files into F/NAME.json (cpu, h200, ...; F is docs/benchmarks without
--folder), with the machine and its software. CHECKS.tsv (tools/gpu_check.sh) adds its checks and writes their table next to it.
`adopt` takes files that `collect` made elsewhere into docs/benchmarks, joins the parts of one run, and writes the tables. Checks that
passed before a failed check was repaired and repeated may be of another commit, which their notes name; measurements may not.
`update` puts results of bench/networks into docs/benchmarks/NAME.json, each with its commit, and writes the tables.
`tables` writes every table again from docs/benchmarks, between its markers; a table without records is unchanged.
`pictures` draws with gnuplot docs/pictures/precision.png, time against error of shape A's forward in every precision, goals.png, and
a picture of each docs/benchmarks/network_roofline_*.json.
`goals` compares the goals of docs/benchmarks/goals.json with the measurements: reached, or missed by how much; PNG shows it.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess

import report_elementwise
import report_goals
import report_networks
import report_roofline
import report_scaling

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
SHARED = ("device", "isa", "threads", "torch")  # printed once by a program, valid for all its records
GOAL_COLUMNS = ["what", "measure", "wanted", "measured", "verdict"]
TOP = ("copy_bytes_per_s", "blas_operations_per_s", "cudnn")  # rates of the machine, measured in the run


def read(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def write(path, data):
    """Written as a whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def merge_top(result, data):
    for key in TOP:
        if isinstance(data.get(key), dict):
            result.setdefault(key, {}).update(data[key])
        elif key in data:
            result.setdefault(key, data[key])


def read_checks(path):
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t", 4) for line in lines if line.count("\t") >= 4]
    return [{"part": part, "check": check, "result": result, "seconds": float(seconds), "note": note}
            for part, check, result, seconds, note in rows]


def collect(arguments):
    result = {"commit": arguments.commit, "date": arguments.date}
    result.update(pair.split("=", 1) for pair in arguments.set)
    records, left_out = [], []
    for name in arguments.results:
        data = read(name)
        merge_top(result, data)
        shared = {key: data[key] for key in SHARED if key in data}
        records += [{"suite": data["suite"], **record, **shared} for record in data["records"]]
        left_out += data.get("left_out", [])
    if left_out:
        result["left_out"] = left_out
    if arguments.checks:
        result["checks"] = read_checks(arguments.checks)
    result["records"] = records
    path = arguments.folder / f"{arguments.name}.json"
    write(path, result)
    if arguments.checks:
        (arguments.folder / "gpu_check.md").write_text(f"{provenance(result)}\n\n{checks_table(result)}\n", encoding="utf-8")
    print(f"{path}: {len(records)} records")


def key_of(record):
    return tuple(record.get(key) for key in ("suite", "shape", "case", "network", "direction", "precision", "algorithm", "mode", "data",
                                          "gpus", "op", "dtype"))


def adopt(arguments):
    parts = [read(name) for name in arguments.results]
    commit = parts[-1]["commit"]
    others = sorted({part["commit"] for part in parts if part["records"]} - {commit})
    if others:
        raise SystemExit(f"report.py: expected numbers of {commit}, the last part's commit, alone, got {', '.join(others)}")
    result = {key: value for key, value in parts[-1].items() if key not in ("records", "checks")}
    checks, records = {}, {}
    for part in parts:
        merge_top(result, part)
        for check in part.get("checks", []):
            if part["commit"] != commit:
                check = {**check, "note": f"at {part['commit']}; {check['note']}".removesuffix("; ")}
            checks[check["part"], check["check"]] = check
        records.update({key_of(record): record for record in part["records"]})
    if checks:
        result["checks"] = list(checks.values())
    result["records"] = list(records.values())
    write(DOCS / "benchmarks" / pathlib.Path(arguments.results[0]).name, result)
    tables(arguments)


def update(arguments):
    path = DOCS / "benchmarks" / f"{arguments.name}.json"
    data = read(path)
    report_networks.update(data, [read(result) for result in arguments.results], arguments.commit, arguments.date)
    write(path, data)
    tables(arguments)


def table(header, rows, texts=1):
    """A Markdown table with aligned columns; the first `texts` are text, the others numbers."""
    lines = [header] + rows
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    render = lambda line: "| " + " | ".join(
        cell.ljust(width) if i < texts else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))) + " |"
    rule = "|" + "|".join("-" * (width + 2) if i < texts else "-" * (width + 1) + ":" for i, width in enumerate(widths)) + "|"
    return "\n".join([render(header), rule] + [render(row) for row in rows])


def suite(data, name):
    return [record for record in data["records"] if record["suite"] == name]


def ratio(record, peer):
    return record["peers"][peer] / record["us_burst"]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def cpu_convolutions(data):
    records = suite(data, "conv_transpose1d")
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
            for r in suite(data, "training_step")]
    return table(["batch", "ms", "PyTorch ms", "x PyTorch"], rows)


def best_ratio(record, wanted):
    """The time of the fastest peer whose name `wanted` accepts, over the record's time; empty without one."""
    times = [us for name, us in record.get("peers", {}).items() if wanted(name)]
    return f"{min(times) / record['us_burst']:.2f}" if times else ""


def gpu_convolutions(data):
    rows = []
    for r in suite(data, "conv_transpose1d"):
        sustained = r.get("us_sustained")
        rows.append([r["shape"], r["direction"], r["precision"], r["algorithm"] + (" *" if r.get("chosen") else ""),
                     f"{r['us_burst'] / 1e3:.3f}", f"{sustained / 1e3:.3f}" if sustained else "",
                     f"{r['us_burst_packed'] / 1e3:.3f}" if "us_burst_packed" in r else "",
                     f"{100 * r['roofline_us'] / r['us_burst']:.0f}",
                     best_ratio(r, lambda name: name.startswith("cudnn") and name.endswith("_ncl")),
                     best_ratio(r, lambda name: name.startswith("cudnn")), best_ratio(r, lambda name: name.startswith("torch")),
                     "not finite" if r["error"] is None else f"{r['error']:.1e}"])
    header = ["shape", "direction", "precision", "algorithm", "ms burst", "ms sustained", "ms packing", "% of roofline", "x cuDNN (its layout)",
              "x cuDNN (its best)", "x PyTorch", "error"]
    return table(header, rows, 4) if rows else None


def gpu_tensor_cores(data):
    """Forward of every shape with the chosen algorithm, compared with cuDNN: f32 at f32 accuracy with cuDNN's tf32 and fp32 in the user's
    layout, tf32 and bf16 with its fastest layout."""
    records = {(r["shape"], r["precision"]): r for r in suite(data, "conv_transpose1d") if r["direction"] == "forward" and r.get("chosen")}

    def cudnn(shape, precision, ending):
        peers = records.get((shape, precision), {}).get("peers", {})
        return min((us for name, us in peers.items() if name.startswith("cudnn") and name.endswith(ending)), default=None)

    columns = [("fp32", "fp32", "_ncl", "x cuDNN fp32"), ("fp32", "tf32", "_ncl", "x cuDNN tf32"),
               ("tf32", "tf32", "", "x cuDNN tf32, best layout"), ("bf16", "bf16", "", "x cuDNN bf16, best layout")]
    measured = {precision for _, precision in records}
    columns = [column for column in columns if column[0] in measured and column[1] in measured]
    precisions = list(dict.fromkeys(column[0] for column in columns))
    rows = []
    for shape in dict.fromkeys(shape for shape, _ in records):
        row = [shape]
        for precision in precisions:
            own = records.get((shape, precision), {}).get("us_burst")
            row.append(f"{own / 1e3:.3f}" if own else "")
            for _, peer, ending, _ in (column for column in columns if column[0] == precision):
                other = cudnn(shape, peer, ending)
                row.append(f"{other / own:.2f}" if own and other else "")
        rows.append(row)
    header = ["shape"]
    for precision in precisions:
        header += [f"{precision} ms"] + [title for of, _, _, title in columns if of == precision]
    return table(header, rows) if rows else None


def gpu_gradients(data):
    """dgrad and wgrad of every shape with the chosen algorithm, compared with cuDNN's fastest layout in the same precision."""
    records = {(r["shape"], r["direction"], r["precision"]): r for r in suite(data, "conv_transpose1d") if r.get("chosen")}
    columns = [(direction, precision) for direction in ("dgrad", "wgrad") for precision in ("fp32", "tf32", "bf16")]
    rows = []
    for shape in dict.fromkeys(shape for shape, direction, _ in records if direction in ("dgrad", "wgrad")):
        row = [shape]
        for direction, precision in columns:
            record = records.get((shape, direction, precision))
            row.append(f"{record['us_burst'] / 1e3:.3f}" if record else "")
            row.append(best_ratio(record, lambda name, of=precision: name.startswith(f"cudnn_{of}_")) if record else "")
        rows.append(row)
    header = ["shape"] + [name for direction, precision in columns for name in (f"{direction} {precision} ms", "x cuDNN")]
    return table(header, rows) if rows else None


def gpu_forms(data):
    """The kernel or tiling of each case, its distance from the roofline, and the loss of the choice."""
    rows = [[r["shape"], r["direction"], r["precision"], r["algorithm"], r["form"], f"{r['us_burst'] / 1e3:.3f}",
             f"{100 * r['roofline_us'] / r['us_burst']:.0f}", f"{100 * r['lost']:.1f}" if "lost" in r else ""]
            for r in suite(data, "conv_forms") if r.get("chosen") and "form" in r]
    header = ["shape", "direction", "precision", "algorithm", "form", "ms", "% of roofline", "% lost by the choice"]
    return table(header, rows, 5) if rows else None


def times_normal(record):
    return record["us_burst"] / record["us_normal"]


def gpu_data_kernels(data):
    """The same for each kernel that was requested by name: the largest ratio over shapes, directions and precisions, and its data."""
    records = [r for r in suite(data, "data_independence") if r["algorithm"] != "automatic"]
    rows = []
    for kernel in dict.fromkeys(r["algorithm"] for r in records):
        row = [kernel]
        for mixed in ("between", "within"):
            worst = max(((times_normal(r), r["data"], r["shape"]) for r in records if (r["algorithm"], r["mixed"]) == (kernel, mixed)),
                        default=None)
            row.append(f"{worst[0]:.2f} ({worst[1]}, {worst[2]})" if worst else "")
        rows.append(row)
    return table(["kernel", "between tiles, rows, channels or tensors", "within every tile"], rows) if rows else None


def gpu_data(data):
    """The largest ratio of a kind of data to normal data, for the kernels that the library chooses, and its shape."""
    records = [r for r in suite(data, "data_independence") if r["algorithm"] == "automatic"]
    columns = list(dict.fromkeys((r["direction"], r["precision"]) for r in records))
    rows = []
    for mixed, kind in dict.fromkeys((r["mixed"], r["data"].replace("gradient", "weights")) for r in records):
        row = [kind, mixed]
        for column in columns:
            worst = max(((times_normal(r), r["shape"]) for r in records
                         if (r["direction"], r["precision"]) == column and r["data"].replace("gradient", "weights") == kind), default=None)
            row.append(f"{worst[0]:.2f} ({worst[1]})" if worst else "")
        rows.append(row)
    return table(["data", "magnitudes differ", *(" ".join(column) for column in columns)], rows, 2) if rows else None


def gpu_others(name, unit, scale):
    """The table of a suite whose records differ in shape and algorithm, with a column for each peer."""
    def render(data):
        records = suite(data, name)
        peers = list(dict.fromkeys(peer for record in records for peer in record.get("peers", {})))
        show = lambda value: "" if value is None else f"{value / scale:.3f}"
        rows = [[r["shape"], r["algorithm"], show(r["us_burst"]), *(show(r.get("peers", {}).get(peer)) for peer in peers)] for r in records
                if "us_burst" in r]
        return table(["what", "way", unit, *(f"{peer} {unit}" for peer in peers)], rows, 2) if rows else None
    return render


def whole_networks(data):
    header, rows = report_networks.all_rows(suite(data, "networks"))
    return table(header, rows, 3) if rows else None


def cpu_networks(data):
    header, rows, ratios = report_networks.cpu_rows(suite(data, "networks"))
    mean = f"\n\nGeometric mean of PyTorch over ours: {geometric_mean(ratios):.2f}, least {min(ratios):.2f}." if ratios else ""
    return table(header, rows, 1) + mean if rows else None


def gpu_memory(data):
    rows = [[r["shape"], f"{r['live_peak_bytes'] / 2**20:.1f}", f"{r['held_peak_bytes'] / 2**20:.1f}",
             f"{100 * (r['held_peak_bytes'] / r['live_peak_bytes'] - 1):.1f}"] for r in suite(data, "allocator") if "held_peak_bytes" in r]
    return table(["training run", "live at most, MiB", "held at most, MiB", "more, %"], rows) if rows else None


def checks_table(data):
    rows = [[c["part"], c["check"], c["result"], f"{c['seconds']:.1f}", c["note"].replace("|", "/")] for c in data.get("checks", [])]
    if not rows:
        return None
    count = {result: sum(row[2] == result for row in rows) for result in ("passed", "failed", "skipped")}
    widest = table(["part", "check", "result", "seconds", "note"], rows, 3)
    return f"{widest}\n\n{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"


def goals_of(data):
    return report_goals.judge(read(DOCS / "benchmarks" / "goals.json"), data["records"])


def gpu_goals(data):
    rows = goals_of(data)
    return f"{table(GOAL_COLUMNS, report_goals.cells(rows), 2)}\n\n{report_goals.summary(rows)}"


def goals(arguments):
    data = read(arguments.result)
    rows = goals_of(data)
    print(f"{table(GOAL_COLUMNS, report_goals.cells(rows), 2)}\n\n{report_goals.summary(rows)}")
    if arguments.picture:
        report_goals.draw(rows, arguments.picture, f"Goals on an {data.get('gpu', 'GPU')}, commit {data['commit']}")


TABLES = {
    "scaling": ("scaling", lambda data: table(*rows) if (rows := report_scaling.rows(suite(data, "scaling"))) else None),
    "cpu_convolutions": ("cpu", cpu_convolutions),
    "cpu_steps": ("cpu", cpu_steps),
    "cpu_networks": ("networks_cpu", cpu_networks),
    "gpu_networks": ("h200", whole_networks),
    "networks_h200": ("networks_h200", lambda data: table(*report_networks.rows(data))),
    "networks_h100": ("networks_h100", lambda data: table(*report_networks.rows(data))),
    "gpu_convolutions": ("h200", gpu_convolutions),
    "gpu_tensor_cores": ("h200", gpu_tensor_cores),
    "gpu_gradients": ("h200", gpu_gradients),
    "gpu_forms": ("h200", gpu_forms),
    "gpu_steps": ("h200", gpu_others("training_step", "ms", 1e3)),
    "gpu_allocator": ("h200", gpu_others("allocator", "us", 1)),
    "gpu_memory": ("h200", gpu_memory),
    "gpu_elementwise": ("elementwise_h200", lambda data: table(*report_elementwise.rows(suite(data, "elementwise")))),
    "gpu_cold_start": ("h200", gpu_others("cold_start", "s", 1e6)),
    "gpu_data": ("data_independence_h200", gpu_data),
    "gpu_data_kernels": ("data_independence_h200", gpu_data_kernels),
    "gpu_goals": ("h200", gpu_goals),
    "gpu_checks": ("h200", checks_table),
}


def provenance(data):
    words = [f"{key} {value}" for key, value in data.items() if isinstance(value, str)]
    if "copy_bytes_per_s" in data:
        words.append(f"copy {data['copy_bytes_per_s'] * 1e-12:.2f} TB/s")
    words += [f"cuBLAS {name} {rate * 1e-12:.0f} TFLOP/s" for name, rate in data.get("blas_operations_per_s", {}).items()]
    return f"*{', '.join(words)}*"


def tables(_):
    for page in (DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("benchmarks/*.md")):
        if not page.is_file():
            continue
        text = page.read_text(encoding="utf-8")
        for name, (source, render) in TABLES.items():
            if f"<!-- table {name} -->" not in text:
                continue
            path = DOCS / "benchmarks" / f"{source}.json"
            if not path.is_file():
                continue
            data = read(path)
            rendered = render(data)
            if rendered is None:
                continue
            block = f"<!-- table {name} -->\n{provenance(data)}\n\n{rendered}\n<!-- end -->"
            text = re.sub(rf"<!-- table {name} -->.*?<!-- end -->", lambda _, block=block: block, text, flags=re.S)
        page.write_text(text, encoding="utf-8")


def pictures(_):
    data = read(DOCS / "benchmarks" / "h200.json")
    # The chosen algorithm in each precision, and the plain f32 kernel; labels alternate above and below.
    points = sorted((r["us_burst"] / 1e3, r["error"], f"{r['algorithm']} {r['precision']}") for r in suite(data, "conv_transpose1d")
                    if r["shape"] == "A" and r["direction"] == "forward" and r["error"]
                    and (r.get("chosen") or (r["algorithm"], r["precision"]) == ("direct", "fp32")))
    lines = "\n".join(f'{ms:.6g} {error:.6g} "{name}" {error * (1.6 if i % 2 else 0.62):.6g}' for i, (ms, error, name) in enumerate(points))
    script = f"""set terminal pngcairo size 900,520 font 'sans,11'
set output 'docs/pictures/precision.png'
set logscale xy
set xlabel 'ms'
set ylabel 'error against float64, relative'
set format y '10^{{%L}}'
set title 'ConvTranspose1d 128 to 128 channels, K=3, 64 x 65536: forward on an {data.get("gpu", "GPU")}'
set grid
set key off
set xrange [0.5:30]
set yrange [1e-7:1e-1]
$points << end
{lines}
end
plot $points using 1:2 with points pointtype 7 pointsize 1.4, '' using 1:4:3 with labels left offset 0.5,0 noenhanced
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True, cwd=DOCS.parent)
    report_goals.draw(goals_of(data), DOCS / "pictures" / "goals.png", f"Goals on an {data.get('gpu', 'GPU')}, commit {data['commit']}")
    for path in sorted((DOCS / "benchmarks").glob("network_roofline_*.json")):
        report_roofline.draw(path, DOCS / "pictures" / f"{path.stem}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("collect")
    command.add_argument("name")
    command.add_argument("results", nargs="*")
    command.add_argument("--commit", required=True)
    command.add_argument("--date", required=True)
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    command.add_argument("--folder", type=pathlib.Path, default=DOCS / "benchmarks")
    command.add_argument("--checks")
    command.set_defaults(run=collect)
    command = commands.add_parser("adopt")
    command.add_argument("results", nargs="+")
    command.set_defaults(run=adopt)
    command = commands.add_parser("update")
    command.add_argument("name")
    command.add_argument("results", nargs="+")
    command.add_argument("--commit", required=True)
    command.add_argument("--date", required=True)
    command.set_defaults(run=update)
    commands.add_parser("tables").set_defaults(run=tables)
    commands.add_parser("pictures").set_defaults(run=pictures)
    command = commands.add_parser("goals")
    command.add_argument("result")
    command.add_argument("--picture", metavar="PNG")
    command.set_defaults(run=goals)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
