#!/usr/bin/env python3
"""No kernel spills registers and no wgmma is serialised (ptxas' C7510 to C7520). Either costs up to half of the speed without any other
sign. Reads the results of the build; compiles only two small kernels that it must find.

usage: check_ptxas.py BUILD_ROOT [--log NINJA_LOG] [--bad BAD_KERNELS] [OBJECT NAME PART...]
cuobjdump prints the spills that the objects record. NINJA_LOG holds the messages of ptxas: the output of `ninja` for this folder, of one
or more runs. For objects that are not in it ccache repeats the messages. Exits 77 (skipped) if the build folder has no CUDA, or the
machine has no cuobjdump.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Kernels that may spill: a regular expression for the mangled name, and the reason with measurements (an H200, bursts of 12).
ALLOWED = {
    r"stride1_kernelINS1_11Stride1ModeINS1_13OperandTraitsIfLNS0_3ptx6TensorE0ELi[12]EEELi[12]ELi5E":
        "rows of f32 with five taps: fragments of all taps and 128 sums. Elements read twice, and what a thread knows of itself read "
        "again, spill nothing and take 1 to 4 % longer (tf32, 16 x 128 x 65536: 441 to 462 us, 506 to 515 us).",
    r"phased_stride4_f32_kernel":
        "five reads and writes of registers, for the call that leaves suspects to the wide kernel (wavegan's fp32 forward: 468 us on an H100; no "
        "version without them was timed).",
    r"residual_unit_kernel\S*UnitKindE2ENS1_9UnitShapeILi96E":
        "two registers once a block of positions, for two thread blocks of nine warps an SM (a unit of DAC: 163 us on an H200; without the ninth warp, "
        "which copies the weights, nothing spills and it takes 202).",
    r"f32_residual_unit_kernel":
        "what is spilled is of a block of positions, most of it where a block has small numbers and its sums are looked at; two thread blocks an SM "
        "leave 128 registers (a unit of DAC with 96 channels: 285 us on an H200; without the ninth warp, with fewer spills, 318).",
    r"f32_residual_unit_marked_kernel":
        "up to 24 values a block of positions, with Snake most of them across the call for numbers far from zero; the kernel computes only blocks that "
        "one scale does not suit.",
    r"wide_gather_kernel|wgrad_wide_kernel":
        "128 registers, so that two blocks share a multiprocessor. What is spilled is of a block of outputs, of wgrad also the loader; they run "
        "only where sums are suspect.",
    r"source_tma_kernelINS1_7TmaModeINS1_13OperandTraitsIf":
        "one to four registers before the first tile, where the kernel looks whether the source is mixed (C in fp32 on an H200, forward 446 to 470 us and "
        "dgrad 527 to 547 us in two runs; without the look 443 to 476 and 488 to 544).",
    r"wgrad_rows_kernelINS1_13OperandTraitsIfLNS0_3ptx6TensorE0ELi(?:1EEELi128|2EEELi64)ELi3E":
        "two registers once a block, where the kernel looks at its sample (conv128_k7 in tf32 on an H200: 785 us, without the look 800).",
    r"by_tile_kernel":
        "three registers once a tile, in a kernel that runs only where sums are suspect or magnitudes mixed.",
    r"reduce_rows_kernelILNS_8ReduceOpE[34]EffE":
        "max and min of f32: one register, once a row. Three blocks an SM spill nothing and take 3 % less for long rows (48.4 to "
        "46.9 us), but 10 % more for rows of 48 (12.1 to 13.4 us).",
}

# The same for sm_80 alone.
ALLOWED_OF_SM80 = {
    r"attention_many_kernelIfE":
        "19 reads and writes of registers of 128, so that two blocks share a multiprocessor; nothing spills for sm_90a (not timed on a GPU).",
    r"advance_kernelI[jtm]Li(?:32|16)E":
        "the most numbers that a thread holds between reading and writing rows; ptxas keeps all of their addresses too (not timed on a GPU).",
}

# Functions that a kernel calls after its tiles, and only for suspect sums. Values that live across these calls may be spilled.
COLD = re.compile(r"\d+(?:mma_)?recompute|\d+finish_tiles|\d+store_(?:list|block)")
SYMBOL = re.compile(r"\s+0x[0-9a-f]+\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+FUNC\s.*\s\$([^$\s]+)\$(\S+)$")
SPILL = re.compile(r"SpillRefill\s*:\s*Offset\s*:\s*0x([0-9a-f]+)")

SERIALISED = re.compile(r"^.*\(C75(?:1[0-9]|20)\).*$", re.MULTILINE)
COUNTS = {"passed": 0, "failed": 0, "skipped": 0}


def count(result: str, *lines: str) -> None:
    COUNTS[result] += 1
    for line in lines:
        print(line)


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command[:3])} ...:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def cuda_commands(build: Path, parts: list[str]) -> dict[str, list[str]]:
    """The compile command of each CUDA object of the library; objects that are not built by default are included if they exist."""
    entries = json.loads(run(["ninja", "-t", "compdb"], build))
    found = {}
    for entry in entries:
        output = entry.get("output", "")
        is_left_out = "libsm80_kernels" in output and not (build / output).exists()
        if output.endswith(".cu.o") and output.startswith("src/") and not is_left_out and any(part in output for part in parts or [""]):
            found.setdefault(Path(output).name, [output, *shlex.split(entry["command"])])
    return {words[0]: words[1:] for words in found.values()}


def said_to(command: list[str], build: Path, output: str, source: str | None = None) -> str:
    """The messages of a compilation. Its object and dependency file go elsewhere; `source` replaces its source."""
    command = list(command)
    command[command.index("-o") + 1] = output
    if "-MF" in command:
        command[command.index("-MF") + 1] = output + ".d"
    if source is not None:
        command[command.index("-c") + 1] = source
    return run(command, build)


def spills_in(path: Path) -> tuple[dict[tuple[str, str], int], int]:
    """(architecture, kernel) -> number of loads and stores of spilled registers in the code, without the functions of COLD; and the
    number of kernels."""
    spills: dict[tuple[str, str], int] = {}
    cold: dict[str, list[range]] = {}
    kernels, arch, kernel = 0, "", ""
    for line in run(["cuobjdump", "-elf", str(path)], path.parent).splitlines():
        if match := re.match(r"arch = (\S+)", line):
            arch, cold = match[1], {}
        elif match := SYMBOL.match(line):
            begin, size, of, function = int(match[1], 16), int(match[2], 16), match[3], match[4]
            if COLD.search(function):
                cold.setdefault(of, []).append(range(begin, begin + size))
        elif line.startswith("."):
            match = re.match(r"\.nv\.info\.(\S+)", line)
            kernel = match[1] if match else ""
            kernels += match is not None
        elif (match := SPILL.search(line)) and kernel and not any(int(match[1], 16) in part for part in cold.get(kernel, [])):
            spills[arch, kernel] = spills.get((arch, kernel), 0) + 1
    return spills, kernels


def logged(text: str) -> dict[str, str]:
    """The messages of the last compilation of each CUDA object in the log."""
    pieces = re.split(r"^\[\d+/\d+\] (.*)$", text, flags=re.MULTILINE)
    return {title.split()[-1]: said for title, said in zip(pieces[1::2], pieces[2::2]) if title.startswith("Compiling Cuda object")}


def plain(name: str) -> str:
    """A kernel's readable name, if c++filt is installed."""
    if shutil.which("c++filt") is None:
        return name
    name = subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()
    return name.replace("(anonymous namespace)::", "").split("(")[0]


def check_spills(build: Path, objects: list[str], asks_all: bool) -> None:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda name: spills_in(build / name), objects))
    kernels = sum(number for _, number in found)
    used, wrong = set(), []
    for name, (spills, _) in zip(objects, found):
        for (arch, kernel), times in sorted(spills.items()):
            allowed = [pattern for pattern in ALLOWED if re.search(pattern, kernel)]
            used.update(allowed)
            if not allowed and not (arch == "sm_80" and any(re.search(pattern, kernel) for pattern in ALLOWED_OF_SM80)):
                wrong.append(f"spills: {Path(name).name}, {arch}: {plain(kernel)}: {times} reads and writes")
    print(f"{kernels} kernels in {len(objects)} objects, {len(wrong)} spill that may not")
    if asks_all:
        wrong += [f"nothing spills that is allowed to by {pattern}" for pattern in ALLOWED if pattern not in used]
    count("failed" if wrong or not kernels else "passed", *wrong)


def check_serialised(build: Path, commands: dict[str, list[str]], log: str) -> None:
    said = logged(log)
    missing = [name for name in commands if name not in said]
    if missing and not all("ccache" in Path(commands[name][0]).name for name in missing):
        return count("skipped", f"skipped: no ccache to say again what ptxas said of {len(missing)} objects")
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            again = pool.map(lambda name: said_to(commands[name], build, f"{folder}/{Path(name).name}"), missing)
            said.update(zip(missing, again))
    wrong = [f"{Path(name).name}: {line}" for name in commands for line in SERIALISED.findall(said[name])]
    print(f"what ptxas said of {len(commands)} objects, {len(missing)} of them by ccache: {len(wrong)} lines of serialised wgmmas")
    count("failed" if wrong else "passed", *wrong)


def check_the_check(build: Path, command: list[str], bad: Path, looks_at_objects: bool) -> None:
    """Both kernels are found for each architecture."""
    archs = re.findall(r"code=(sm_\w+)", " ".join(command))
    with tempfile.TemporaryDirectory() as folder:
        said = said_to(command, build, f"{folder}/bad.o", str(bad))
        if looks_at_objects:
            spills, kernels = spills_in(Path(folder) / "bad.o")
            right = all(any("spills" in kernel for found, kernel in spills if found == arch) for arch in archs)
            count("passed" if right and kernels == 2 * len(archs) else "failed", *([] if right else [f"{bad.name} spills; found {spills}"]))
    if "sm_90a" in archs:
        right = bool(SERIALISED.search(said))
        count("passed" if right else "failed", *([] if right else [f"{bad.name} has serialised wgmmas; ptxas said:\n{said}"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--bad", type=Path, default=Path(__file__).resolve().parent / "bad_kernels.cu")
    parser.add_argument("parts", nargs="*")
    asked = parser.parse_args()
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    commands = cuda_commands(asked.build.resolve(), asked.parts)
    if not commands:
        print(f"no CUDA objects in {asked.build}")
        return 77
    build, has_cuobjdump = asked.build.resolve(), shutil.which("cuobjdump") is not None
    check_the_check(build, next(iter(commands.values())), asked.bad.resolve(), has_cuobjdump)
    if has_cuobjdump:
        check_spills(build, list(commands), not asked.parts and "code=sm_90a" in " ".join(next(iter(commands.values()))))
    else:
        count("skipped", "skipped: no cuobjdump on this machine")
    log = asked.log.read_text(encoding="utf-8", errors="replace") if asked.log and asked.log.exists() else ""
    check_serialised(build, commands, log)
    print(f"test cases: {COUNTS['passed']} passed, {COUNTS['failed']} failed, {COUNTS['skipped']} skipped")
    return 1 if COUNTS["failed"] else 0


sys.exit(main())
