#!/usr/bin/env python3
"""The API reference builds without a warning, and the build fails for a wrong comment.

usage: check_api_reference.py BUILD_PY VERSION HEADER:HEADER:...
"""
import subprocess
import sys
import tempfile
from pathlib import Path

BAD = """#pragma once
namespace polyphase {
/// Adds.
/// @param c there is no such parameter
int add(int a, int b);
}  // namespace polyphase
"""


def build(output: Path, headers: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, sys.argv[1], sys.argv[2], str(output), headers], capture_output=True, text=True, timeout=300)


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(temporary)
    good = build(folder / "good", sys.argv[3])
    if good.returncode == 77:
        print(good.stdout, end="")
        sys.exit(77)
    (folder / "bad.hpp").write_text(BAD)
    bad = build(folder / "bad", f"{sys.argv[3]}:{folder / 'bad.hpp'}")
    pages = len(list((folder / "good/html").glob("class*.html")))
    checks = {
        f"the reference builds: {good.stderr}{good.stdout}": good.returncode == 0,
        f"expected pages of more than 20 classes, got {pages}": pages > 20,
        "a parameter that does not exist is an error": bad.returncode != 0 and "bad.hpp" in bad.stderr,
    }
for text, passed in checks.items():
    if not passed:
        print(f"failed: {text}")
print(f"test cases: {sum(checks.values())} passed, {len(checks) - sum(checks.values())} failed, 0 skipped")
sys.exit(0 if all(checks.values()) else 1)
