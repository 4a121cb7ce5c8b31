#!/usr/bin/env python3
"""A change in a header rebuilds exactly what includes it. usage: check_rebuild.py SOURCE_ROOT BUILD_ROOT

Compares the dependencies that Ninja has recorded for every object with the #include lines; where they differ, the compiler's -MM decides.
Then touches one header, asks Ninja what it would rebuild, and restores the header's time.
"""
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

source_root, build_root = (Path(a).resolve() for a in sys.argv[1:3])
FOLDERS = ("src", "tests", "examples", "bench", "program", "tool", "python")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def ninja(*arguments: str) -> str:
    return subprocess.run(["ninja", "-C", str(build_root), *arguments], check=True, capture_output=True, text=True).stdout


def is_ours(path: Path) -> bool:
    return path.is_relative_to(source_root) and path.relative_to(source_root).parts[0] in FOLDERS


def read_includes(path: Path, found: set[Path], folders: list[Path]) -> set[Path]:
    """The project's files reached from this one by #include, as text."""
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        for folder in [path.parent, *folders]:
            real = Path(os.path.normpath(folder / name.removeprefix("polyphase/")))
            if real.is_file() and is_ours(real):
                if real not in found:
                    found.add(real)
                    read_includes(real, found, folders)
                break
    return found


def recorded() -> dict[str, set[Path]]:
    """The output of `ninja -t deps`: object -> the project's files that it depends on."""
    result, current = {}, None
    for line in ninja("-t", "deps").splitlines():
        if line.startswith(" "):
            path = Path(os.path.normpath(build_root / line.strip()))
            if is_ours(path):
                current.add(path)
        elif ": #deps" in line:
            current = result.setdefault(line.split(":")[0], set())
    return result


def asked_of_compiler(entry: dict) -> set[Path]:
    words = shlex.split(entry["command"])
    for option in ("-MD", "-MMD"):
        words = [w for w in words if w != option]
    for option in ("-MQ", "-MF", "-o"):
        if option in words:
            at = words.index(option)
            del words[at:at + 2]
    text = subprocess.run([w for w in words if w != "-c"] + ["-MM"], cwd=entry["directory"], check=True, capture_output=True, text=True).stdout
    paths = text.replace("\\\n", " ").split(":", 1)[1].split()
    return {p for p in (Path(os.path.normpath(build_root / w)) for w in paths) if is_ours(p)}


def main() -> int:
    if "no work to do" not in ninja("-n"):
        print("the build is not up to date, so nothing can be said")
        return 77
    entries = json.loads((build_root / "compile_commands.json").read_text(encoding="utf-8"))
    deps, problems = recorded(), []
    for entry in entries:
        source = Path(os.path.normpath(build_root / entry["file"]))
        output = entry["output"]
        if output not in deps:  # a target that is not built by default
            continue
        folders = [source_root / "src", source_root / "tests", source_root]
        expected = read_includes(source, {source} if is_ours(source) else set(), folders)  # one of tools/together.py is not ours
        if deps[output] != expected:
            expected = asked_of_compiler(entry)
        for path in deps[output] ^ expected:
            verb = "is rebuilt for nothing" if path in deps[output] else "is not rebuilt"
            problems.append(f"{output} {verb} after a change of {path.relative_to(source_root)}")

    header = source_root / "src/tensor/shape.hpp"
    users = {output for output, paths in deps.items() if header in paths}
    before = header.stat()
    try:
        os.utime(header)
        rebuilt = set(re.findall(r"Compiling (?:C\+\+|Cuda) object (\S+)", ninja("-n")))
    finally:
        os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))
    if rebuilt != users or not users:
        problems.append(f"touching shape.hpp would rebuild {len(rebuilt)} objects, {len(users)} include it; the difference begins with "
                        f"{sorted(rebuilt ^ users)[:5]}")
    if "no work to do" not in ninja("-n"):
        problems.append("with the header's time put back there is still something to do")

    for problem in problems[:20]:
        print(problem)
    print(f"{len(deps)} objects looked at, {len(users)} of them include tensor/shape.hpp")
    return 1 if problems else 0


sys.exit(main())
