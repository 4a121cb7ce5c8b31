#!/usr/bin/env python3
"""Meson rebuilds a CUDA object when a header that it includes changes, and only then. (Meson 1.0 did not.)

usage: check_cuda_rebuild.py BUILD_ROOT      exits 77 (skipped) where there is no working nvcc
Makes a project of two .cu files in a temporary folder, builds it, and changes one header.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from meson_in_use import meson_in_use  # noqa: E402

PROJECT = """project('scratch', 'cuda', default_options: ['buildtype=plain'])
static_library('scratch', 'uses.cu', 'plain.cu')
"""


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def main() -> int:
    nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    if not nvcc:
        print("no nvcc on this machine")
        return 77
    os.environ["PATH"] += ":" + str(Path(nvcc).parent)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "meson.build").write_text(PROJECT)
        (folder / "value.cuh").write_text("#define VALUE 1\n")
        (folder / "uses.cu").write_text('#include "value.cuh"\n__global__ void uses(int* out) { *out = VALUE; }\n')
        (folder / "plain.cu").write_text("__global__ void plain(int* out) { *out = 2; }\n")
        if run([nvcc, "-c", "plain.cu", "-o", "probe.o"], folder).returncode != 0:
            print("nvcc is there, but cannot compile")
            return 77
        setup = run([*meson_in_use(Path(sys.argv[1])), "setup", "build"], folder)
        if setup.returncode != 0:
            print(setup.stdout[-3000:])
            return 77 if "sanity check" in setup.stdout.lower() or "Compiler nvcc cannot compile" in setup.stdout else 1
        built = run(["ninja", "-C", "build"], folder)
        if built.returncode != 0:
            print(built.stdout[-3000:])
            return 1
        idle = run(["ninja", "-C", "build", "-n"], folder).stdout
        header = folder / "value.cuh"
        header.write_text("#define VALUE 3\n")
        os.utime(header, (header.stat().st_atime + 2, header.stat().st_mtime + 2))
        after = run(["ninja", "-C", "build", "-n"], folder).stdout
    objects = re.findall(r"Compiling Cuda object (\S+)", after)
    print(f"with nothing changed: {idle.strip().splitlines()[-1]}\nwith the header changed: {objects}")
    right = "no work to do" in idle and [Path(o).name for o in objects] == ["uses.cu.o"]
    return 0 if right else 1


sys.exit(main())
