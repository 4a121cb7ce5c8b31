#!/usr/bin/env python3
"""Decides whether the build has CUDA and for which architectures: for the GPUs of this machine, or what was asked for.

usage: cuda_choice.py auto|enabled [ARCHITECTURE...]      as the options cuda and gpu_archs say
Prints the architectures on one line, an empty one where CUDA is left out, and the reason on the next. Exits 1 with a sentence
where CUDA was asked for and nvcc does not work.
"""
import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLDEST = 80  # the kernels use instructions of sm_80
EVERYWHERE = ["80", "90a"]  # 80 is also kept as PTX, which the driver translates for later GPUs
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


def gpus_here() -> list[int]:
    """The compute capabilities of this machine's GPUs as the driver names them, 90 for 9.0."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found = set()
    for device in range(count.value):
        driver.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device)
        found.add(10 * major.value + minor.value)
    return sorted(found)


def run(command: list[str]) -> tuple[int, str]:
    """Exit status and output; a program that cannot be started or does not end has an exit status too."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout


def what_it_said(status: int, text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = next((line for line in lines if "error" in line or "fatal" in line), lines[0] if lines else "")
    return f"exit status {status}, " + (f"it prints '{said[:200]}'" if said else "it prints nothing")


def nvcc_problem(nvcc: list[str]) -> str:
    """What is wrong with a compiler that is there; empty where it says its version and compiles a kernel."""
    status, text = run([*nvcc, "--version"])
    if not re.search(r"release [0-9.]+, V[0-9.]+", text):
        return f"nvcc ({nvcc[-1]}) does not say its version: {what_it_said(status, text)}"
    with tempfile.TemporaryDirectory() as folder:
        source, compiled = Path(folder) / "probe.cu", Path(folder) / "probe.o"
        source.write_text("__global__ void probe() {}\n")
        status, text = run([*nvcc, "-c", str(source), "-o", str(compiled)])
        if status == 0 and compiled.is_file():
            return ""
    return f"nvcc ({nvcc[-1]}) cannot compile a kernel: {what_it_said(status, text)}"


def machine_code(gpus: list[int], nvcc: list[str]) -> list[str]:
    """The architectures to compile for so that code runs on these GPUs, of those that nvcc knows."""
    known = run([*nvcc, "--list-gpu-code"])[1].split()
    if not gpus or any(f"sm_{gpu}" not in known for gpu in gpus):
        return EVERYWHERE
    return ["90a" if gpu == 90 else str(gpu) for gpu in gpus]


def choose(enabled: bool, archs: list[str]) -> tuple[list[str], str]:
    """The architectures, none where CUDA is left out, and the reason."""
    gpus = gpus_here()
    usable = [gpu for gpu in gpus if gpu >= OLDEST]
    if not enabled and not archs and not usable:
        lack = f"the NVIDIA GPU here is sm_{gpus[-1]}, older than sm_{OLDEST}" if gpus else "no NVIDIA GPU here"
        return [], f"{lack} (-Dcuda=enabled builds it)"
    *launcher, name = shlex.split(os.environ.get("NVCC") or "nvcc")  # "ccache nvcc" too
    nvcc = [*launcher, shutil.which(name) or name]
    problem = nvcc_problem(nvcc) if shutil.which(name) else ""  # where there is none Meson says so
    if problem and (enabled or archs):
        raise SystemExit(f"CUDA is asked for, but {problem} (-Dcuda=disabled leaves CUDA out)")
    if problem:
        return [], problem
    reason = "asked for by -Dgpu_archs" if archs else "asked for by -Dcuda=enabled" if enabled else "an NVIDIA GPU is here"
    return archs or machine_code(usable, nvcc), reason


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in ("auto", "enabled"):
        raise SystemExit("usage: cuda_choice.py auto|enabled [ARCHITECTURE...]")
    archs, reason = choose(sys.argv[1] == "enabled", sys.argv[2:])
    print(" ".join(archs))
    print(reason)


if __name__ == "__main__":
    main()
