#!/usr/bin/env python3
"""Every public header compiles as a user includes it: with one include path, alone.

usage: check_headers.py INCLUDE_DIR HEADER... -- COMPILER...
HEADER is named as in #include <polyphase/HEADER>. No Eigen, JSON or CUDA include path is given, and warnings are errors. A header whose own
source includes it first is compiled alone by g++'s optimized build of the library, which has no precompiled headers. Those headers are compiled together here, and one by
one if that fails. All others are compiled one by one.
"""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src"

arguments = sys.argv[1:]
split = arguments.index("--")
include_dir, headers, compiler = arguments[0], arguments[1:split], arguments[split + 1:]
flags = ["-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "-x", "c++"]
# Equals -I${includedir} of an installed library: headers include each other by relative paths.
paths = ["-I", include_dir]


def errors_of(some: list[str]) -> str:
    text = "".join(f"#include <polyphase/{header}>\n" for header in some)
    run = subprocess.run(compiler + flags + paths + ["-"], input=text, capture_output=True, text=True)
    return "" if run.returncode == 0 else run.stderr or f"exit status {run.returncode}"


def is_first_in_own_source(header: str) -> bool:
    source = (SOURCES / header).with_suffix(".cpp")
    if not source.exists() or header.startswith("cuda/"):
        return False
    first = re.search(r'^#include "([^"]+)"', source.read_text(encoding="utf-8"), re.MULTILINE)
    return first is not None and first[1] == header


compiled = [header for header in headers if is_first_in_own_source(header)]
groups = [[header] for header in headers if header not in compiled]
workers = os.cpu_count() or 1
groups += [group for i in range(workers) if (group := compiled[i::workers])]
with ThreadPoolExecutor(workers) as pool:
    failed = {tuple(group): text for group, text in zip(groups, pool.map(errors_of, groups)) if text}
    alone = [header for group in failed if len(group) > 1 for header in group]
    failed |= {(header,): text for header, text in zip(alone, pool.map(errors_of, [[header] for header in alone])) if text}
# A group whose headers all compile alone fails itself: two headers do not go together.
named = {group: text for group, text in failed.items() if len(group) == 1 or not any((header,) in failed for header in group)}
for group, text in named.items():
    print(f"polyphase/{', '.join(group)} does not compile:\n{text}")
print(f"test cases: {len(headers) - len(named)} passed, {len(named)} failed, 0 skipped")
sys.exit(1 if named else 0)
