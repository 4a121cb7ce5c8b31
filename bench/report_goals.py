"""Compares the library's goals (docs/benchmarks/goals.json) with the measurements of a run. Used by report.py.

A goal selects its records by their fields; a list means one goal for each of its values. `algorithm` defaults to the library's choice.
`measure` is a key of MEASURES, or `x PEER`: the peer's time over the record's time.
"""

import itertools
import subprocess

FIELDS = ("suite", "shape", "direction", "precision", "algorithm", "data", "mixed")
MEASURES = {
    "ms": lambda record: record["us_burst"] / 1e3,
    "s": lambda record: record["us_burst"] / 1e6,
    "ns": lambda record: record["us_burst"] * 1e3,
    "% of the roofline": lambda record: 100 * record["roofline_us"] / record["us_burst"],
    "% held over live": lambda record: 100 * (record["held_peak_bytes"] / record["live_peak_bytes"] - 1),
    "times normal data": lambda record: record["us_burst"] / record["us_normal"],
    "% lost by the choice": lambda record: 100 * record["lost"] if "lost" in record else None,
}


def expand(goals):
    for goal in goals:
        keys = [key for key, value in goal.items() if isinstance(value, list)]
        for values in itertools.product(*(goal[key] for key in keys)):
            yield {**goal, **dict(zip(keys, values))}


def name_of(goal):
    where = " ".join(goal[key] for key in ("algorithm", "precision", "direction", "data", "mixed") if key in goal and goal[key] != goal.get("shape"))
    return ", ".join(part for part in (goal["suite"] if goal["suite"] != "conv_transpose1d" else "", goal.get("shape", "every shape"), where)
                     if part)


def is_meant(record, goal):
    if any(record.get(key) != goal[key] for key in FIELDS if key in goal):
        return False
    return "algorithm" in goal or record.get("chosen", False) or record.get("algorithm") == "automatic"


def peer_time(records, record, peer):
    """A peer is timed with its own precision, which may be that of another record."""
    same = lambda other: all(other.get(key) == record.get(key) for key in ("suite", "shape", "direction"))
    return next((other["peers"][peer] for other in records if same(other) and peer in other.get("peers", {})), None)


def measured(records, goal):
    """The worst of the selected records; None without one."""
    values = []
    for record in (record for record in records if is_meant(record, goal)):
        if goal["measure"].startswith("x "):
            peer = peer_time(records, record, goal["measure"][2:])
            values += [peer / record["us_burst"]] if peer else []
        else:
            values.append(MEASURES[goal["measure"]](record))
    return (min if "at_least" in goal else max)((value for value in values if value is not None), default=None)


def judge(goals, records):
    """(what, measure, wanted, measured, share) of each goal; a share up to 1 is reached, 1.1 misses by 10 %."""
    rows = []
    for goal in expand(goals):
        bound, more = (goal["at_least"], True) if "at_least" in goal else (goal["at_most"], False)
        value = measured(records, goal)
        share = None if value is None else bound / value if more else value / bound
        rows.append((name_of(goal), goal["measure"], f"{'>=' if more else '<='} {bound:g}", value, share))
    return rows


def verdict(share):
    if share is None or share <= 1:
        return "not measured" if share is None else "reached"
    percent = 100 * (share - 1)
    return f"missed by {percent:.0f} %" if percent >= 0.95 else f"missed by {max(percent, 0.1):.1f} %"  # never by 0 %


def cells(rows):
    """Rows of text for a table."""
    return [[what, measure, wanted, "" if value is None else f"{value:.3g}", verdict(share)] for what, measure, wanted, value, share in rows]


def summary(rows):
    shares = [share for *_, share in rows if share is not None]
    reached = sum(share <= 1 for share in shares)
    return f"{reached} goals reached, {len(shares) - reached} missed, {len(rows) - len(shares)} not measured"


def draw(rows, picture, title):
    """Draws one bar for each goal with gnuplot: the measured value over the wanted one, which is the line at 1."""
    rows = [(what, measure, wanted, share) for what, measure, wanted, _, share in rows if share is not None]
    bars = "\n".join(f'{share:.4f} {-i} "{what}: {measure} {wanted}" {0x2e8b57 if share <= 1 else 0xc0504d}'
                     for i, (what, measure, wanted, share) in enumerate(rows))
    script = f"""set terminal pngcairo size 1000,{90 + 16 * len(rows)} font 'sans,9' noenhanced
set output '{picture}'
set title "{title}"
set xlabel 'measured over wanted: up to 1 is reached'
set xrange [0:2]
set yrange [{-len(rows)}:1]
set grid xtics
set key off
set arrow from 1,{-len(rows)} to 1,1 nohead linewidth 2
set style fill solid
$bars << end
{bars}
end
plot $bars using (0):2:(0):($1 > 2 ? 2 : $1):($2-0.35):($2+0.35):4:ytic(3) with boxxyerror linecolor rgb variable
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
