#!/usr/bin/env python3
"""Adds up test cases over the programs of one `meson test` run.

usage: count_tests.py TESTLOG.json [OUTPUT]
Prints why tests were skipped, then `N passed, N failed, N skipped` (and appends it to the file OUTPUT, if given). A program prints its
own counts in a line `test cases: N passed, N failed, N skipped`. One without that line counts as one test; one that fails without a
failed case (a crash, a sanitizer's report, a timeout) adds one failure.
"""
import json
import re
import sys

SKIPPED = re.compile(r"^skipped: .*$", re.MULTILINE)
COUNTS = re.compile(r"^test cases: (\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def counts_of(test: dict) -> tuple[int, int, int]:
    said = COUNTS.findall(test.get("stdout") or "")
    passed, failed, skipped = (sum(map(int, column)) for column in zip(*said)) if said else (0, 0, 0)
    result = test["result"]
    if result in ("OK", "EXPECTEDFAIL"):
        return (passed, failed, skipped) if said else (1, 0, 0)
    if result == "SKIP":
        return (passed, failed, skipped) if said else (0, 0, 1)
    return passed, failed or 1, skipped


def skip_reasons(test: dict) -> list[str]:
    output = test.get("stdout") or ""
    if test["result"] == "SKIP" and not COUNTS.search(output):
        return [f"skipped: {test['name']}: {(output.strip().splitlines() or ['no reason given'])[-1]}"]
    return SKIPPED.findall(output)


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as log:
        tests = [json.loads(line) for line in log if line.strip()]
    for reason in (reason for test in tests for reason in skip_reasons(test)):
        print(reason)
    passed, failed, skipped = (sum(column) for column in zip((0, 0, 0), *map(counts_of, tests)))
    line = f"{passed} passed, {failed} failed, {skipped} skipped"
    print(line)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a", encoding="utf-8") as output:
            output.write(line + "\n")
    return 1 if failed or not passed else 0


sys.exit(main())
