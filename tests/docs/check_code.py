#!/usr/bin/env python3
"""The programs in the pages compile with one include path, run, and exit 0.

usage: check_code.py SOURCE_ROOT BUILD_ROOT COMPILER...
A program on a page has the line `<!-- run -->` before its ```cpp block. README's program is only compiled, because it trains for a long
time.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE, BUILD, COMPILER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
PROGRAM = re.compile(r"<!-- run -->\n```cpp\n(.*?)```", re.DOTALL)
FIRST = re.compile(r"```cpp\n(.*?)```", re.DOTALL)


def compile_and_run(name: str, text: str, folder: Path, run: bool) -> str:
    """The error of a program; empty if there is none."""
    source, program = folder / f"{name}.cpp", folder / name
    source.write_text(text)
    command = [*COMPILER, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", f"-I{BUILD / 'src/include'}", str(source), "-o", str(program),
               f"-L{BUILD / 'src'}", "-lpolyphase", f"-Wl,-rpath,{BUILD / 'src'}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return f"it does not compile:\n{done.stderr[-2000:]}"
    if run:
        done = subprocess.run([str(program)], capture_output=True, text=True, cwd=folder, timeout=300)
    return "" if done.returncode == 0 else f"exit status {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"


programs = [("README", FIRST.findall((SOURCE / "README.md").read_text(encoding="utf-8"))[0], False)]
for page in sorted((SOURCE / "docs").glob("*.md")):
    programs += [(f"{page.stem}_{i}", text, True) for i, text in enumerate(PROGRAM.findall(page.read_text(encoding="utf-8")))]
failed = 0
with tempfile.TemporaryDirectory() as temporary:
    for name, text, run in programs:
        wrong = compile_and_run(name, text, Path(temporary), run)
        failed += wrong != ""
        if wrong:
            print(f"failed: the program of {name}: {wrong}")
if len(programs) < 3:
    print(f"failed: expected programs in README and two pages, found {[name for name, _, _ in programs]}")
    failed += 1
print(f"test cases: {len(programs) - min(failed, len(programs))} passed, {failed} failed, 0 skipped")
sys.exit(1 if failed else 0)
