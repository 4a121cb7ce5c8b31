#!/usr/bin/env python3
"""Every public header compiles alone, as a user includes it, with one include path and no other header.

usage: check_headers.py INCLUDE_DIR HEADER... -- COMPILER...
HEADER is named as in #include <polyphase/HEADER>. No Eigen, JSON or CUDA include path is given, and warnings are errors.
"""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

arguments = sys.argv[1:]
split = arguments.index("--")
include_dir, headers, compiler = arguments[0], arguments[1:split], arguments[split + 1:]
flags = ["-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "-x", "c++"]
# Equals -I${includedir} of an installed library: headers include each other by relative paths.
paths = ["-I", include_dir]


def errors_of(header: str) -> str:
    # Included twice, so that a header without a guard is found.
    text = f"#include <polyphase/{header}>\n#include <polyphase/{header}>\n"
    run = subprocess.run(compiler + flags + paths + ["-"], input=text, capture_output=True, text=True)
    return "" if run.returncode == 0 else run.stderr or f"exit status {run.returncode}"


with ThreadPoolExecutor(os.cpu_count()) as pool:
    results = dict(zip(headers, pool.map(errors_of, headers)))
failed = {header: text for header, text in results.items() if text}
for header, text in failed.items():
    print(f"polyphase/{header} does not compile alone:\n{text}")
print(f"test cases: {len(results) - len(failed)} passed, {len(failed)} failed, 0 skipped")
sys.exit(1 if failed else 0)
