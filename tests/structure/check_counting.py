#!/usr/bin/env python3
"""The last line counts results: cases, not programs; skipped is not passed; a crash is a failure.

usage: check_counting.py COUNTING_SAMPLE COUNT_TESTS
"""
import json
import os
import subprocess
import sys
import tempfile

sample, count_tests = sys.argv[1:3]
failed = 0


def expect(what: str, got: object, wanted: object) -> None:
    global failed
    if got != wanted:
        failed += 1
        print(f"{what}: expected {wanted!r}, got {got!r}")


def counted(*tests: dict) -> tuple[str, int]:
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as log:
        log.writelines(json.dumps(test) + "\n" for test in tests)
    try:
        done = subprocess.run([sys.executable, count_tests, log.name], capture_output=True, text=True)
    finally:
        os.unlink(log.name)
    return done.stdout.splitlines()[-1], done.returncode


run = subprocess.run([sample], capture_output=True, text=True)
expect("exit status of a program with a failed case", run.returncode, 1)
expect("its last line", run.stdout.splitlines()[-1], "test cases: 2 passed, 1 failed, 2 skipped")
expect("the reasons given", [line for line in run.stdout.splitlines() if line.startswith("skipped: ")],
       ["skipped: skipped: no such device", "skipped: skipped in one subcase: half a device"])
only = subprocess.run([sample, "--test-case=passes"], capture_output=True, text=True)
expect("a filtered run", only.stdout.splitlines()[-1], "test cases: 1 passed, 0 failed, 0 skipped")
none = subprocess.run([sample, "--test-case=nothing"], capture_output=True, text=True)
expect("exit status where no case ran", none.returncode, 1)

good = {"result": "OK", "stdout": "test cases: 3 passed, 0 failed, 1 skipped\n"}
expect("two programs", counted(good, good), ("6 passed, 0 failed, 2 skipped", 0))
expect("a failed case", counted(good, {"result": "FAIL", "stdout": run.stdout}), ("5 passed, 1 failed, 3 skipped", 1))
expect("a crash before the end", counted(good, {"result": "FAIL", "stdout": "..."}), ("3 passed, 1 failed, 1 skipped", 1))
expect("a leak after the end", counted({**good, "result": "FAIL"}), ("3 passed, 1 failed, 1 skipped", 1))
expect("a script", counted({"result": "OK"}, {"result": "SKIP", "name": "script", "stdout": "no nvcc\n"}), ("1 passed, 0 failed, 1 skipped", 0))
expect("a timeout", counted({"result": "TIMEOUT"}), ("0 passed, 1 failed, 0 skipped", 1))
expect("nothing at all", counted(), ("0 passed, 0 failed, 0 skipped", 1))
sys.exit(1 if failed else 0)
