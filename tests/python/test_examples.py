"""The programs of examples/python, as a user starts them, and the code of the pages."""
import array
import json
import re
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import polyphase as pp
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "python"
CONFIG = json.dumps({
    "resblock": "1", "upsample_rates": [4, 4], "upsample_kernel_sizes": [8, 8], "upsample_initial_channel": 16,
    "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 3, 5]], "num_mels": 8, "sampling_rate": 8000,
    "n_fft": 64, "hop_size": 16, "win_size": 64, "fmin": 0, "fmax": 4000})


def run(name, *arguments, ok=True):
    done = subprocess.run([sys.executable, EXAMPLES / name, *map(str, arguments)], capture_output=True, timeout=300, check=False)
    assert (done.returncode == 0) == ok, done.stderr.decode()
    return done.stdout, done.stderr.decode()


@pytest.fixture(name="model")
def fixture_model(tmp_path):
    pp.manual_seed(1)
    pp.save_safetensors(str(tmp_path / "net.safetensors"), pp.HifiGan(CONFIG).state_dict())
    (tmp_path / "config.json").write_text(CONFIG, encoding="utf-8")
    return tmp_path / "net.safetensors"


def test_the_quickstart_learns(tmp_path):
    out, _ = run("quickstart.py", tmp_path / "model.safetensors")
    losses = [float(line.split()[-1]) for line in out.decode().splitlines()]
    assert losses[-1] < 0.5 * losses[0]
    assert list(pp.load_safetensors(str(tmp_path / "model.safetensors"))[0])[0] == "0.weight"


def test_a_vocoder_is_tuned(model, tmp_path):
    samples = (8000 * np.sin(0.3 * np.arange(8000))).astype(np.int16)
    with wave.open(str(tmp_path / "voice.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples.tobytes())
    out, _ = run("finetune_vocoder.py", model, tmp_path / "tuned.safetensors", tmp_path / "voice.wav", "--steps", 100, "--learning-rate", 2e-3)
    losses = [float(line.split()[-1]) for line in out.decode().splitlines()]
    assert len(losses) == 3 and losses[2] < losses[0]
    assert pp.load_model(str(tmp_path / "tuned.safetensors")).network == "hifigan"
    _, errors = run("finetune_vocoder.py", model, tmp_path / "tuned.safetensors", tmp_path / "voice.wav", "--seconds", 100, ok=False)
    assert "at least" in errors


def test_a_stream_is_played(model, tmp_path):
    mel = pp.randn((8, 21))
    pp.save_npy(str(tmp_path / "mel.npy"), mel)
    out, errors = run("stream_player.py", model, tmp_path / "mel.npy", "--frames", 4)
    with pp.no_grad():
        whole = pp.load_model(str(model)).net(mel.unsqueeze(0))
    assert len(out) == 2 * whole.numel() and "latency" in errors
    assert np.abs(np.array(array.array("h", out)) - 32767 * whole.numpy().ravel()).max() <= 1


@pytest.mark.parametrize("page, least", [("README.md", 1), ("docs/python.md", 3)])
def test_the_code_of_a_page_runs(page, least, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    blocks = [block for block in blocks if "torch" not in block and "jax" not in block]
    assert len(blocks) >= least
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, page, "exec"), {"__name__": page})
