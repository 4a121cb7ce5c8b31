"""The table of a training step on one and two GPUs. Used by report.py."""

HEADER = ["precision", "1 GPU ms", "2 GPUs ms", "efficiency %", "PyTorch 1 GPU ms", "PyTorch 2 GPUs ms", "efficiency %"]


def rows(records):
    """(header, rows) of records of suite "scaling": our times and PyTorch's best, and what two GPUs do of twice the work of one. None
    without records."""
    by_key = {(record["precision"], record["gpus"]): record for record in records}
    if not by_key:
        return None

    def ours(precision, gpus):
        return by_key.get((precision, gpus), {}).get("us_burst")

    def theirs(precision, gpus):
        return min(by_key.get((precision, gpus), {}).get("peers", {}).values(), default=None)

    result = []
    for precision in dict.fromkeys(precision for precision, _ in by_key):
        row = [precision]
        for times in (ours, theirs):
            one, two = times(precision, 1), times(precision, 2)
            row += [f"{us / 1e3:.1f}" if us else "" for us in (one, two)] + [f"{100 * one / two:.1f}" if one and two else ""]
        result.append(row)
    return HEADER, result
