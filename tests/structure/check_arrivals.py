#!/usr/bin/env python3
"""No warp arrives at a barrier of shared memory while its read of that memory is still in progress. The arrival could overtake the read,
and another warp would overwrite the memory too early. ptxas keeps such an arrival after the read but moves it across wgmma.fence, and no
sanitizer reports it (docs/kernels/stride1.md). A read is finished before the first instruction that uses a word of its result: the scoreboard
counts instructions, not words.

usage: check_arrivals.py BUILD_ROOT
Reads the output of cuobjdump for the build's CUDA objects in code order, ignoring branches. Exits 77 (skipped) without CUDA objects or
cuobjdump.
"""
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Exempt kernels: a regular expression for the mangled name, and the other purpose of their arrivals.
ALLOWED = {
    r"stride1_kernelINS1_11Stride1ModeINS1_13OperandTraitsIfLNS0_3ptx6TensorE0ELi1EEE": "the other consumer's turn to multiply, who writes nothing that is read here",
    r"phased_stride4_kernelINS1_13OperandTraitsI(6__half|13__nv_bfloat16)": "a stage before the one that is read",
    r"f32_residual_unit_kernel\S*WholeUnitShape": "the copy of the next convolution's weights, in the place of those whose products are done; read are the "
        "scales of the channels, which nothing overwrites",
}

FUNCTION = re.compile(r"Function : (\S+)")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s*(.*?);")
WORDS = {".64": 2, ".128": 4}


def words_of(name: str) -> int:
    """Registers that an operand of an instruction names."""
    if name.startswith("LDSM"):
        return int(match[1]) if (match := re.search(r"\.([124])$", name)) else 1
    return 4 if name.startswith("HGMMA") else max([WORDS[part] for part in WORDS if part in name], default=1)


def early_arrivals(text: str) -> dict[str, int]:
    """Kernel -> arrivals that come before the first use of an earlier read of shared memory."""
    found: dict[str, int] = {}
    kernel, under_way = "", {}  # register -> the registers of its read
    for line in text.splitlines():
        if match := FUNCTION.search(line):
            kernel, under_way = match[1], {}
            continue
        match = INSTRUCTION.match(line)
        if match is None:
            continue
        name, operands = match.groups()
        registers = [int(number) for number in re.findall(r"\bR(\d+)\b", operands)]
        if name.startswith("SYNCS.ARRIVE"):
            if under_way:
                found[kernel] = found.get(kernel, 0) + 1
            continue
        is_read = name.startswith("LDS") and registers
        wanted = registers[1:] if is_read else registers
        used = {each for first in wanted for each in range(first, first + (1 if is_read else words_of(name)))}
        for each in used & under_way.keys():
            for word in under_way.pop(each, ()):
                under_way.pop(word, None)
        if is_read:
            read = range(registers[0], registers[0] + words_of(name))
            under_way.update(dict.fromkeys(read, read))
    return found


EARLY = """
\tFunction : early
        /*0000*/                   LDS.64 R22, [R188] ;
        /*0010*/                   FMUL R7, R24, R24 ;
        /*0020*/              @!P1 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR22+0xc8], RZ ;
        /*0030*/                   FMUL R8, R23, R7 ;
\tFunction : late
        /*0000*/                   LDS.64 R22, [R188] ;
        /*0010*/                   F2FP.F16.F32.PACK_AB R153, R23, R24 ;
        /*0020*/                   SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR22+0xc8], RZ ;
"""


def main() -> int:
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    build = Path(sys.argv[1]).resolve()
    objects = sorted(build.glob("src/**/*.cu.o"))
    if not objects or shutil.which("cuobjdump") is None:
        print("no CUDA objects" if not objects else "no cuobjdump on this machine")
        return 77
    wrong = [] if early_arrivals(EARLY) == {"early": 1} else [f"the check finds {early_arrivals(EARLY)}"]

    def look(path: Path) -> dict[str, int]:
        said = subprocess.run(["cuobjdump", "-sass", str(path)], capture_output=True, text=True, check=True)
        return early_arrivals(said.stdout)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(item for each in pool.map(look, objects) for item in each.items())
    wrong += [f"{kernel}: {times} arrivals" for kernel, times in sorted(found.items()) if not any(re.search(p, kernel) for p in ALLOWED)]
    print(f"{len(objects)} objects, {len(found)} kernels that arrive while they read, {len(wrong)} that may not")
    for line in wrong:
        print(line)
    print(f"test cases: {0 if wrong else 1} passed, {1 if wrong else 0} failed, 0 skipped")
    return 1 if wrong else 0


sys.exit(main())
