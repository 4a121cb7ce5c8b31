"""The table of passes over memory (elementwise.cpp)."""


def rows(records):
    """(header, rows): for each operation and dtype its time, and that of a copy of as many bytes in percent of it."""
    by_key = {(r["op"], r["dtype"]): r for r in records}
    dtypes = list(dict.fromkeys(dtype for _, dtype in by_key))
    lines = []
    for op in dict.fromkeys(op for op, _ in by_key):
        line = [op]
        for dtype in dtypes:
            record = by_key.get((op, dtype))
            line += [f"{record['us_burst']:.0f}", f"{100 * record['copy_us'] / record['us_burst']:.0f}"] if record else ["", ""]
        lines.append(line)
    return ["operation"] + [f"{dtype} {column}" for dtype in dtypes for column in ("us", "% of a copy")], lines
