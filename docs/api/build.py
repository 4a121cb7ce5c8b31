#!/usr/bin/env python3
"""Builds the API reference with Doxygen. A mistake in a comment is an error.

usage: build.py VERSION OUTPUT HEADER:HEADER:...
Writes OUTPUT/html/index.html from this folder's Doxyfile and main.md and the headers' comments. Exit code 77 without Doxygen.
"""
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def configuration(version: str, output: Path, headers: list[str]) -> str:
    inputs = " ".join(f'"{path}"' for path in [HERE / "main.md", *headers])
    return "\n".join([(HERE / "Doxyfile").read_text(encoding="utf-8"), f"INPUT = {inputs}", f'OUTPUT_DIRECTORY = "{output}"',
                      f'USE_MDFILE_AS_MAINPAGE = "{HERE / "main.md"}"', f'STRIP_FROM_PATH = "{HERE.parent.parent / "src"}"',
                      f"PROJECT_NUMBER = {version}"])


def main() -> int:
    version, output, headers = sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(":")
    if shutil.which("doxygen") is None:
        print("skipped: the API reference: there is no doxygen on this machine")
        return 77
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    return subprocess.run(["doxygen", "-"], input=configuration(version, output, headers), text=True, check=False).returncode


sys.exit(main())
