#!/usr/bin/env python3
"""Whether a build has CUDA: src/cuda/cuda_choice.py with replacements of the driver and nvcc, Meson with it, and the scripts.

usage: check_cuda_choice.py SOURCE_ROOT BUILD_ROOT COMPILER...
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
from stand_ins import COUNTS, expect, program  # noqa: E402

ROOT, BUILD_ROOT, COMPILER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]

# GPUS holds compute capabilities: "90 75".
DRIVER = r"""
#include <cstdlib>
#include <sstream>
static int gpus(int which) {
  const char* text = std::getenv("GPUS");
  std::istringstream words(text == nullptr ? "" : text);
  int count = 0, word = 0;
  while (words >> word && count++ != which) {}
  return which < 0 ? count : word;
}
extern "C" int cuInit(unsigned) { return gpus(-1) > 0 ? 0 : 100; }
extern "C" int cuDeviceGetCount(int* count) { *count = gpus(-1); return 0; }
extern "C" int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? gpus(device) / 10 : attribute == 76 ? gpus(device) % 10 : -1;
  return 0;
}
"""
NVCC = r"""
version="Cuda compilation tools, release 13.0, V13.0.88"
case "$MODE $1" in
  silent*) exit 1 ;;
  garbage*) printf 'garbage\nand more\n'; exit 1 ;;
  "unknown --version") echo "version 13" ;;
  *" --version") echo "$version" ;;
  *" --list-gpu-code") printf 'sm_80\nsm_89\nsm_90\n' ;;
  empty*) ;;
  broken*) printf 'probe.cu\nnvcc fatal : no host compiler\n' >&2; exit 1 ;;
  *) while [ "$1" != -o ]; do shift; done; echo object >"$2" ;;
esac
"""
NO_GPU = r"no NVIDIA GPU here \(-Dcuda=enabled builds it\)"


def run(command: list, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(folder), **variables}
    environment.pop("NVCC", None)
    return subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=280, env=environment)


def check_choices(folder: Path) -> None:
    for arguments, gpus, mode, archs, reason in (
            ("auto", "", "good", "", NO_GPU),
            ("auto", "", "silent", "", NO_GPU),
            ("auto", "75", "good", "", r"the NVIDIA GPU here is sm_75, older than sm_80 \(-Dcuda=enabled builds it\)"),
            ("auto", "90", "good", "90a", "an NVIDIA GPU is here"),
            ("auto", "90 75 80", "good", "80 90a", "an NVIDIA GPU is here"),
            ("auto", "120", "good", "80 90a", "an NVIDIA GPU is here"),  # unknown to this nvcc; it runs PTX of sm_80
            ("auto", "90", "silent", "", r"nvcc \(.*bin/nvcc\) does not say its version: exit status 1, it prints nothing"),
            ("auto 80 90a", "", "good", "80 90a", "asked for by -Dgpu_archs"),
            ("auto 89", "90", "good", "89", "asked for by -Dgpu_archs"),
            ("enabled", "", "good", "80 90a", "asked for by -Dcuda=enabled"),
            ("enabled", "89", "good", "89", "asked for by -Dcuda=enabled"),
            ("enabled 90a", "89", "good", "90a", "asked for by -Dgpu_archs")):
        result = run([ROOT / "src/cuda/cuda_choice.py", *arguments.split()], folder, GPUS=gpus, MODE=mode)
        expect(f"with GPUs '{gpus}' and nvcc {mode}: '{archs}' because {reason}", result.returncode == 0 and
               re.fullmatch(f"{archs}\n{reason}\n", result.stdout) is not None, result)
    for arguments, mode, words in (("enabled", "garbage", "does not say its version: exit status 1, it prints 'garbage'"),
                                   ("enabled", "unknown", "does not say its version: exit status 0, it prints 'version 13'"),
                                   ("auto 90a", "empty", "cannot compile a kernel: exit status 0, it prints nothing"),
                                   ("enabled", "broken", "cannot compile a kernel: exit status 1, it prints 'nvcc fatal : no host compiler'")):
        result = run([ROOT / "src/cuda/cuda_choice.py", *arguments.split()], folder, GPUS="90", MODE=mode)
        lines = result.stderr.splitlines()
        expect(f"one sentence with {words!r}", result.returncode == 1 and len(lines) == 1 and words in lines[0] and
               lines[0].startswith("CUDA is asked for, but nvcc (") and "-Dcuda=disabled leaves CUDA out" in lines[0], result)
    (folder / "bin/nvcc").write_bytes(b"\0\0\0\0")  # no program at all
    result = run([ROOT / "src/cuda/cuda_choice.py", "enabled"], folder)
    expect("what cannot be started", result.returncode == 1 and "Exec format error" in result.stderr and
           "Traceback" not in result.stderr, result)
    program(folder / "bin/nvcc", NVCC)


def check_meson(folder: Path) -> None:
    small = [f"-D{part}=disabled" for part in ("tool", "examples", "bench", "tests")]

    def setup(name: str, *options: str, **variables: str) -> subprocess.CompletedProcess:
        return run([*meson_in_use(BUILD_ROOT), "setup", folder / name, ROOT, *small, *options], folder, **variables)

    result = setup("refused", "-Dcuda=enabled", MODE="silent")
    errors = [line for line in result.stdout.splitlines() if "ERROR" in line]
    expect("one line for a broken nvcc", result.returncode == 1 and len(errors) == 1 and "CUDA is asked for, but nvcc (" in errors[0] and
           "exception" not in result.stdout + result.stderr, result)
    result = setup("without", MODE="silent", GPUS="")
    expect("left out without a GPU", result.returncode == 0 and
           len(re.findall(f"^(?:Message: CUDA|    CUDA +:) left out: {NO_GPU}$", result.stdout, re.MULTILINE)) == 2, result)
    real = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    if real is None:
        return
    program(folder / "bin/nvcc", f'exec {real} "$@"')
    result = setup("with", GPUS="90")
    if "exit status" in result.stdout:  # an nvcc that fails here
        return
    expect("for the GPU that is here", re.search(r"^Message: CUDA [0-9.]+ for 90a: an NVIDIA GPU is here$", result.stdout, re.MULTILINE)
           is not None, result)
    objects = re.findall(r"^build src/libpolyphase\S+\.cu\.o:.*\n(?: .*\n)*", (folder / "with/build.ninja").read_text(encoding="utf-8"), re.MULTILINE)
    compiled_for = set(re.findall(r"code=sm_\w+", "".join(objects)))
    expect(f"code for it alone, got {compiled_for}", compiled_for == {"code=sm_90a"}, result)


def check_scripts(folder: Path) -> None:
    """What tools/build.sh prints for a new folder, and that .ci/run compiles every kernel."""
    for name in ("tools/build.sh", ".ci/run", "tools/test.sh"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    program(folder / "tools/setup.sh", "")
    program(folder / ".venv/bin/meson", 'echo "Message: CUDA left out: no NVIDIA GPU here"; echo "Build targets in project: 9"')
    program(folder / "bin/ninja", "")
    result = run(["tools/build.sh", "new"], folder)
    expect("one line of build.sh", result.returncode == 0 and result.stdout == "build: CUDA left out: no NVIDIA GPU here\n", result)
    program(folder / "tools/build.sh", 'echo "built with: $*"')
    program(folder / "bin/nvcc", "")
    program(folder / "bin/nvidia-smi", "exit 9")
    result = run(["tools/test.sh", "--cuda"], folder)
    expect("test.sh --cuda compiles for sm_90a", result.stdout.startswith("built with: build -Dgpu_archs=90a\n"), result)
    expect("nothing else without CUDA", "sm80_kernels" not in result.stdout, result)
    program(folder / "bin/nvcc", 'echo "--Ofast-compile <level>"')
    result = run(["tools/test.sh", "--cuda"], folder)
    expect("quickly where no kernel can run", result.stdout.startswith(
        "built with: build -Dgpu_archs=90a -Dcuda_args=-Ofc=max -Doptimization=plain -Dcpp_args=-O3 -Dtogether=true\n"), result)
    program(folder / "bin/nvidia-smi", "")
    result = run(["tools/test.sh", "--cuda"], folder)
    expect("optimized where there is a GPU", result.stdout.startswith("built with: build -Dgpu_archs=90a\n"), result)
    (folder / "build").mkdir()
    (folder / "build/build.ninja").write_text("build sm80_kernels: phony\n")
    result = run(["tools/test.sh", "--cuda"], folder)
    expect("test.sh --cuda compiles for sm_80", "built with: build --target sm80_kernels\n" in result.stdout, result)
    result = run(["tools/test.sh"], folder)
    expect("only on request", "sm80_kernels" not in result.stdout, result)
    program(folder / "tools/test.sh", 'echo "tested with: $*"; echo "1 passed, 0 failed, 0 skipped" >>"$POLYPHASE_TEST_COUNTS"')
    result = run([".ci/run"], folder)
    expect(".ci/run compiles CUDA", "tested with: --werror --slow --cuda --python\n" in result.stdout, result)


with tempfile.TemporaryDirectory() as temporary:
    scratch = Path(temporary)
    (scratch / "driver.cpp").write_text(DRIVER)
    subprocess.run([*COMPILER, "-shared", "-fPIC", "-o", str(scratch / "libcuda.so.1"), str(scratch / "driver.cpp")], check=True)
    program(scratch / "bin/nvcc", NVCC)
    check_choices(scratch)
    check_meson(scratch)
    check_scripts(scratch)
print(f"test cases: {COUNTS['passed']} passed, {COUNTS['failed']} failed, 0 skipped")
sys.exit(1 if COUNTS["failed"] else 0)
