#!/usr/bin/env python3
"""Lays out include/polyphase/ROOM/NAME.hpp, one line each, forwarding to the headers next to their sources.

usage: forward_headers.py SOURCE_ROOT INCLUDE_DIR HEADER:HEADER:...
Files that are already right are left alone, so nothing is rebuilt; forwards to headers that went away are removed.
"""
import sys
from pathlib import Path


def main() -> None:
    source_root, include_dir = map(Path, sys.argv[1:3])
    headers = map(Path, sys.argv[3].split(":"))
    wanted = set()
    for header in headers:
        real = header if header.is_absolute() else Path.cwd() / header
        forward = include_dir / "polyphase" / real.resolve().relative_to(source_root.resolve())
        wanted.add(forward)
        text = f'#pragma once\n#include "{real.resolve()}"\n'
        if not forward.is_file() or forward.read_text() != text:
            forward.parent.mkdir(parents=True, exist_ok=True)
            forward.write_text(text)
    for old in include_dir.rglob("*.hpp"):
        if old not in wanted:
            old.unlink()


main()
