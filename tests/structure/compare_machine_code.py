#!/usr/bin/env python3
"""Whether two builds have the same kernels, regardless of names and places: for a change that only moves and renames.

usage: compare_machine_code.py OLD NEW
OLD and NEW are libraries, objects, cubins or build folders (which stand for every CUDA object under their src/). A kernel is its
architecture, its instructions with their encodings in order, and its registers, stack and shared memory. Kernels are matched by these
alone, with multiplicity. Prints how many are identical and which are in one build only. Exits 1 if there is a difference, 77 without
cuobjdump.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ARCH = re.compile(r"^arch = (\S+)|^\tcode for (\S+)")
FUNCTION = re.compile(r"^\s*Function\s*:?\s*([^\s:]+)")
CODE = re.compile(r"^\s+/\*[0-9a-f]{4,6}\*/\s+(.*?)\s*/\* 0x[0-9a-f]+ \*/|^\s+(/\* 0x[0-9a-f]+ \*/)")
# Names in instructions: called functions and variables.
NAME = re.compile(r"[`$]\(?[\w.$]+\)?|\b_Z\w+|\b_GLOBAL_\w+")
USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")


class Kernel(NamedTuple):
    arch: str
    code: str
    instructions: int
    usage: str


def kernels_of(sass: str, usage: str) -> list[tuple[Kernel, str]]:
    """Each kernel of `cuobjdump -sass`, with its line of `cuobjdump -res-usage`, and its mangled name. For a cubin `-res-usage` does not
    print the architecture."""
    resources: dict[tuple[str, str], str] = {}
    arch = name = ""
    for line in usage.splitlines():
        if match := ARCH.search(line):
            arch = match[1] or match[2]
        elif match := FUNCTION.search(line):
            name = match[1]
        elif found := USAGE.findall(line):
            resources[arch, name] = " ".join(f"{what}:{number}" for what, number in found)
    arch = ""
    found: list[tuple[str, str, list[str]]] = []
    for line in sass.splitlines():
        if match := ARCH.search(line):
            arch = match[1] or match[2]
        elif match := FUNCTION.search(line):
            found.append((arch, match[1], []))
        elif found and (match := CODE.search(line)):
            found[-1][2].append(NAME.sub("NAME", " ".join(line.split())))
    return [(Kernel(arch, hashlib.sha256("\n".join(lines).encode()).hexdigest(), sum(";" in line for line in lines),
                    resources.get((arch, name)) or resources.get(("", name), "")), name) for arch, name, lines in found]


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def kernels_in(path: Path) -> list[tuple[Kernel, str]]:
    return kernels_of(run(["cuobjdump", "-sass", str(path)]), run(["cuobjdump", "-res-usage", str(path)]))


def build(path: Path) -> dict[Kernel, list[str]]:
    """The kernels of a build, and for each the names of all identical ones."""
    if not path.exists():
        raise SystemExit(f"{path}: expected a library, an object or a build folder, there is nothing")
    # The objects of one library: Meson compiles each twice if it also builds a static one.
    files = sorted({each.name: each for each in path.glob("src/**/*.cu.o")}.values()) if path.is_dir() else [path]
    kernels: dict[Kernel, list[str]] = defaultdict(list)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(kernels_in, files):
            for kernel, name in found:
                kernels[kernel].append(name)
    if not kernels:
        raise SystemExit(f"{path}: expected kernels, found none in {len(files)} files")
    return kernels


def compare(old: dict[Kernel, list[str]], new: dict[Kernel, list[str]]) -> tuple[int, list[tuple[Kernel, str]], list[tuple[Kernel, str]]]:
    """How many kernels are in both builds, which only in `old` and which only in `new`."""
    same, left = 0, ([], [])
    for kernel in {**old, **new}:
        names = old.get(kernel, []), new.get(kernel, [])
        common = min(len(names[0]), len(names[1]))
        same += common
        for side in (0, 1):
            left[side].extend((kernel, name) for name in names[side][common:])
    return same, left[0], left[1]


SAMPLE = """arch = sm_90a
\t\tFunction : _Z3oldPi
        /*0000*/                   LDC R1, c[0x0][0x28] ;           /* 0x00000a00ff017b82 */
                                                                    /* 0x000fe20000000800 */
        /*0010*/                   CALL.REL.NOINC `($_Z3oldPi$help) ;  /* 0x0000000000007944 */
                                                                    /* 0x000fea0003c00000 */
"""
SAMPLE_USAGE = "arch = sm_90a\n Function _Z3oldPi:\n  REG:8 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:536\n"


def check_the_check() -> None:
    """A new name makes no difference; another encoding, register count or architecture does."""
    old = kernels_of(SAMPLE, SAMPLE_USAGE)
    assert len(old) == 1 and old[0][0].instructions == 2 and old[0][0].usage == "REG:8 STACK:0 SHARED:0 LOCAL:0", old
    renamed = kernels_of(SAMPLE.replace("_Z3old", "_Z3new"), SAMPLE_USAGE.replace("_Z3old", "_Z3new"))
    assert renamed[0][0] == old[0][0] and renamed[0][1] == "_Z3newPi", renamed
    for sample, usage in ((SAMPLE.replace("7b82", "7b83"), SAMPLE_USAGE), (SAMPLE.replace("003c0", "003c1"), SAMPLE_USAGE),
                          (SAMPLE, SAMPLE_USAGE.replace("REG:8", "REG:9")), (SAMPLE.replace("sm_90a", "sm_80"), SAMPLE_USAGE)):
        assert kernels_of(sample, usage)[0][0] != old[0][0], (sample, usage)


def plain(names: list[str]) -> list[str]:
    """Readable names of kernels, if c++filt is installed."""
    if not names or shutil.which("c++filt") is None:
        return names
    said = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [name.replace("(anonymous namespace)::", "").replace("polyphase::cuda::", "") for name in said.splitlines()]


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__.split("\n\n")[1].splitlines()[0], file=sys.stderr)
        return 2
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    check_the_check()
    if shutil.which("cuobjdump") is None:
        print("no cuobjdump on this machine")
        return 77
    same, old, new = compare(build(Path(sys.argv[1])), build(Path(sys.argv[2])))
    for where, kernels in (("OLD", old), ("NEW", new)):
        for (kernel, _), name in zip(kernels, plain([name for _, name in kernels])):
            print(f"only in {where}: {kernel.arch}, {kernel.instructions} instructions, {kernel.usage}: {name}")
    print(f"{same} kernels are identical, {len(old)} are in OLD only, {len(new)} in NEW only")
    return 1 if old or new else 0


sys.exit(main())
