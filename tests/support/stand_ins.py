"""What tests of scripts share: programs that replace the real ones, and a count of passed checks."""
import subprocess
from pathlib import Path

COUNTS = {"passed": 0, "failed": 0}


def expect(what: str, condition: bool, result: subprocess.CompletedProcess) -> None:
    COUNTS["passed" if condition else "failed"] += 1
    if not condition:
        print(f"failed: {what}\n  arguments: {result.args[1:]}\n  exit code: {result.returncode}\n"
              f"  stdout: {result.stdout[-3000:]}\n  stderr: {result.stderr[-2000:]}")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
