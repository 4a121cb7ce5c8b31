#!/usr/bin/env python3
"""Says which sources compile together, so that their headers are compiled once for all of them (the option `together`).

usage: together.py sources ROOT MOST FILE...   divides the files of each room (a folder under ROOT, or one in it) into parts of at most MOST;
                                               prints a part a line: its name, a tab, and its text with | for newlines
       together.py tests FOLDER [NAME...]      prints one source of all tests in FOLDER but those, and those folders, of these names
A test stays in a namespace of its own, so that what tests name alike does not meet. Their headers come first: all have #pragma once.
"""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^#include (<.*>|"(.*)")$', re.MULTILINE)


def room_of(source: Path, root: Path) -> Path:
    folder = source.parent.relative_to(root)
    # Each tensor-core kernel's .cpp files call the same things the same.
    if "tensor_core" in folder.parts and source.suffix == ".cpp":
        return folder
    return Path(*folder.parts[:3 if folder.parts[:2] == ("cuda", "conv") else 2])


def sources(root: Path, most: int, files: list[Path]) -> None:
    rooms: dict[tuple[Path, str], list[Path]] = {}
    for source in files:
        rooms.setdefault((room_of(source, root), source.suffix), []).append(source)
    for (room, suffix), inside in rooms.items():
        count = -(-len(inside) // most)
        for i in range(count):
            part = inside[len(inside) * i // count:len(inside) * (i + 1) // count]
            print("_".join(room.parts) + f"_{i}{suffix}", "|".join(f'#include "{source}"' for source in part), sep="\t")


def tests(folder: Path, left_out: set[str]) -> None:
    files = sorted(f for f in folder.rglob("test_*.cpp") if left_out.isdisjoint([f.stem.removeprefix("test_"), *f.relative_to(folder).parent.parts]))
    headers: dict[str, None] = {}
    for file in files:
        for name, own in INCLUDE.findall(file.read_text(encoding="utf-8")):
            headers[f'"{file.parent / own}"' if own and (file.parent / own).is_file() else name] = None
    for header in headers:
        print("#include", header)
    for i, file in enumerate(files):
        print(f'namespace file_{i} {{\n#include "{file}"\n}}')


if sys.argv[1] == "sources":
    sources(Path(sys.argv[2]), int(sys.argv[3]), [Path(name) for name in sys.argv[4:]])
else:
    tests(Path(sys.argv[2]), set(sys.argv[3:]))
