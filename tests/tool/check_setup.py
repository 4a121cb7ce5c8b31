#!/usr/bin/env python3
"""tools/setup.sh installs exactly the Meson that it names; replacements stand for all programs that it calls.

usage: check_setup.py SOURCE_ROOT
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from stand_ins import COUNTS, expect, program  # noqa: E402

ROOT = Path(sys.argv[1]).resolve()

PIP = r"""
echo "$*" >pip_arguments
cat >pip_requirements
case "$PIP_MODE" in
  other) echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE." >&2; exit 1 ;;
  offline) echo "ERROR: No matching distribution found for meson" >&2; exit 1 ;;
esac
printf '#!/bin/bash\necho 1.12.0\n' >.venv/bin/meson
chmod +x .venv/bin/meson
"""
PYTHON = 'case "$*" in *"venv .venv"*) mkdir -p .venv/bin; cp bin/fake_pip .venv/bin/pip ;; esac'


def run(folder: Path, mode: str, missing: str = "none") -> subprocess.CompletedProcess:
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PIP_MODE": mode, "MISSING_HEADER": missing}
    environment.pop("CXX", None)
    return subprocess.run([str(folder / "tools/setup.sh")], capture_output=True, text=True, timeout=60, env=environment)


with tempfile.TemporaryDirectory() as temporary:
    scratch = Path(temporary)
    (scratch / "tools").mkdir()
    shutil.copy(ROOT / "tools/setup.sh", scratch / "tools/setup.sh")
    for name, text in (("fake_pip", PIP), ("python3", PYTHON), ("meson", "echo 0"),
                       ("c++", 'case "$*" in -dumpversion) echo 13 ;; *" -") ! grep -q "<$MISSING_HEADER>" ;; esac'),
                       ("ninja", ""), ("pkg-config", ""), ("gnuplot", ""), ("apt-get", "exit 1")):
        program(scratch / "bin" / name, text)
    for mode, words in (("other", "not the file whose hash"), ("offline", "no network")):
        failed = run(scratch, mode)
        lines = failed.stderr.splitlines()
        expect(f"one sentence with {words!r}", failed.returncode == 1 and len(lines) == 1 and lines[0].startswith("setup: ") and
               words in lines[0] and not (scratch / ".venv").exists(), failed)
    result = run(scratch, "good")
    expect("it ends well", result.returncode == 0 and (scratch / ".venv/bin/meson").exists(), result)
    without_sound = run(scratch, "good", "sndfile.h")
    expect("without what is optional it goes on, and says so", without_sound.returncode == 0 and
           "going on without libsndfile1-dev" in without_sound.stdout, without_sound)
    without_eigen = run(scratch, "good", "Eigen/Core")
    expect("without what is needed it ends", without_eigen.returncode == 1 and "libeigen3-dev" in without_eigen.stderr, without_eigen)
    arguments, wanted = (scratch / "pip_arguments").read_text(), (scratch / "pip_requirements").read_text()
    expect(f"pip takes only files of a known hash, got {arguments}", "--require-hashes" in arguments.split(), result)
    expect(f"one version with one hash, got {wanted}",
           re.fullmatch(r"meson==\d+\.\d+\.\d+ --hash=sha256:[0-9a-f]{64}\n", wanted) is not None, result)
print(f"test cases: {COUNTS['passed']} passed, {COUNTS['failed']} failed, 0 skipped")
sys.exit(1 if COUNTS["failed"] else 0)
