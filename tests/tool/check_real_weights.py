#!/usr/bin/env python3
"""Published weights through the polyphase command: they load, give correct sound and agree with the golden files.

usage: check_real_weights.py POLYPHASE SOURCE_ROOT [FRAMES]

FRAMES limits how many frames of speech are generated (default: all, 24 s). Fetches the weights by tools/fetch_weights.py. Those that are not available are skipped with the reason.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

PROGRAM, ROOT = sys.argv[1], Path(sys.argv[2])
ALL_FRAMES = 2062
FRAMES = int(sys.argv[3]) if len(sys.argv) > 3 else ALL_FRAMES
COUNTS = {"passed": 0, "failed": 0, "skipped": 0}
GOLDEN = Path(os.environ.get("POLYPHASE_GOLDEN", ROOT.parent / "shared/golden")) / "networks"


def run(*arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, input=data, timeout=900, check=False,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})


def expect(what: str, condition: bool, result: subprocess.CompletedProcess) -> None:
    COUNTS["passed" if condition else "failed"] += 1
    if not condition:
        print(f"failed: {what}\n  arguments: {result.args[1:]}\n  exit code: {result.returncode}\n  stdout: {result.stdout[-600:]!r}\n"
              f"  stderr: {result.stderr[-600:]!r}")


def skip(what: str, reason: str) -> None:
    COUNTS["skipped"] += 1
    print(f"skipped: {what}: {reason}")


def fetched(name: str) -> Path | None:
    result = subprocess.run([sys.executable, str(ROOT / "tools/fetch_weights.py"), name], capture_output=True, text=True, check=False)
    if result.returncode == 3:
        skip(name, result.stderr.strip())
        return None
    expect(f"{name} is fetched and has its hash", result.returncode == 0, result)
    return Path(result.stdout.strip()) if result.returncode == 0 else None


def check_golden(name: str, weights: Path) -> None:
    file = GOLDEN / f"{name}.safetensors"
    if not file.exists():
        skip(f"{name} against its golden file", f"{file} is not here (POLYPHASE_GOLDEN names the folder)")
        return
    for numbers in (("--dtype", "f64"), ("--dtype", "f32")):
        result = run("check", file, "--weights", weights, *numbers)
        expect(f"{name} with {numbers}", result.returncode == 0 and re.search(rb"^1 passed, 0 failed, 0 skipped", result.stdout, re.MULTILINE) is not None, result)


def samples_of(npy: Path) -> tuple[float, ...]:
    data = npy.read_bytes()
    begin = 10 + int.from_bytes(data[8:10], "little")
    return struct.unpack(f"<{(len(data) - begin) // 4}f", data[begin:])


def first_frames(mel: Path, to: Path) -> Path:
    """The first FRAMES of a PyTorch file's (1, 80, frames) as a .npy file."""
    with zipfile.ZipFile(mel) as archive:
        data = archive.read(next(name for name in archive.namelist() if name.endswith("/data/0")))
    row = len(data) // 80
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, 80, {FRAMES}), }}".ljust(117) + "\n"
    to.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                   b"".join(data[band * row : band * row + 4 * FRAMES] for band in range(80)))
    return to


def check_hifigan(folder: Path) -> None:
    weights, config, mel = fetched("hifigan_universal"), fetched("hifigan_config"), fetched("hifigan_mel")
    if weights is None or config is None or mel is None:
        return
    check_golden("hifigan_universal_real", weights)
    if FRAMES < ALL_FRAMES:
        mel = first_frames(mel, folder / "mel.npy")
    model = folder / "hifigan.safetensors"
    result = run("convert", weights, model, "--config", config)
    expect("converted", result.returncode == 0 and b"hifigan, 13926017 parameters" in result.stdout, result)
    result = run("inspect", model)
    expect("inspected", result.returncode == 0 and b"sees        13 frames before its own, 13 after it" in result.stdout, result)
    # Speech in pieces and through pipes.
    start = time.monotonic()
    result = run("run", model, mel, folder / "a.npy", "--chunk", str(min(300, FRAMES * 3 // 4)))
    print(f"{FRAMES * 256 / 22050:.0f} s of speech in {time.monotonic() - start:.1f} s")
    expect("speech", result.returncode == 0 and b"times real time" in result.stderr, result)
    samples = samples_of(folder / "a.npy")
    rms = (sum(x * x for x in samples) / len(samples)) ** 0.5
    expect("as loud as speech, as long as the mel", len(samples) == FRAMES * 256 and 0.01 < rms < 0.2 and max(map(abs, samples)) <= 1, result)
    result = run("run", weights, "-", "-", "--config", config, "--raw", "--stream", str(min(100, FRAMES // 3)), data=mel.read_bytes())
    pcm = struct.unpack(f"<{len(result.stdout) // 2}h", result.stdout)
    apart = max((abs(a - 32768 * b) for a, b in zip(pcm, samples)), default=1e9)
    expect("the same samples from the unconverted file, streamed through pipes", len(pcm) == len(samples) and apart <= 0.51, result)
    other = fetched("hifigan_ljspeech")
    if other is not None:
        result = run("inspect", other, "--config", config)
        expect("LJSpeech's weights load", result.returncode == 0 and b"13,926,017" in result.stdout, result)
    cut = folder / "cut.pth"
    cut.write_bytes(weights.read_bytes()[:30000000])
    result = run("run", cut, mel, folder / "b.wav", "--config", config)
    expect("a file that is cut off is refused in one line", result.returncode == 1 and result.stderr.count(b"\n") == 1 and b"cut.pth" in result.stderr and
           not (folder / "b.wav").exists(), result)


def check_piper(folder: Path) -> None:
    voice = fetched("piper_joe")
    if voice is None:
        return
    check_golden("piper_joe_real", voice)
    result = run("convert", voice, folder / "piper.safetensors")
    expect("the voice's decoder without a configuration", result.returncode == 0 and b"hifigan, 1662976 parameters" in result.stdout, result)


with tempfile.TemporaryDirectory() as temporary:
    check_hifigan(Path(temporary))
    check_piper(Path(temporary))
print("test cases: {passed} passed, {failed} failed, {skipped} skipped".format(**COUNTS))
sys.exit(1 if COUNTS["failed"] else 0)
