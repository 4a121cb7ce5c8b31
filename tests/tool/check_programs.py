#!/usr/bin/env python3
"""Runs a program as a user would: its output, its exit codes, one sentence for every mistake.

usage: check_programs.py polyphase|superres|quickstart|compare_backends|training_step|allocator|cold_start|data_independence PROGRAM DATA_FOLDER
"""
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

NAME, PROGRAM, DATA = sys.argv[1], sys.argv[2], Path(sys.argv[3])
COUNTS = {"passed": 0, "failed": 0}


def run(*arguments: str) -> subprocess.CompletedProcess:
    # Other tests run at the same time, so threads that wait must not occupy a core.
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=500,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})


def expect(what: str, condition: bool, result: subprocess.CompletedProcess) -> None:
    COUNTS["passed" if condition else "failed"] += 1
    if not condition:
        print(f"failed: {what}\n  arguments: {result.args[1:]}\n  exit code: {result.returncode}\n"
              f"  stdout: {result.stdout!r}\n  stderr: {result.stderr!r}")


def expect_output(arguments: list, code: int, *patterns: str) -> subprocess.CompletedProcess:
    result = run(*arguments)
    expect(f"exit code {code}", result.returncode == code, result)
    for pattern in patterns:
        expect(f"output with {pattern!r}", re.search(pattern, result.stdout, re.MULTILINE) is not None, result)
    return result


def expect_error(arguments: list, code: int, pattern: str) -> None:
    """One line that starts with the program's name, and no sign of success on stdout."""
    result = run(*arguments)
    lines = result.stderr.splitlines()
    good = result.returncode == code and len(lines) == 1 and lines[0].startswith(NAME + ": ") and re.search(pattern, lines[0])
    expect(f"exit code {code} and one line with {pattern!r}", bool(good), result)


def expect_full_disk(*arguments: str) -> None:
    """Output that cannot be written is an error."""
    if not os.path.exists("/dev/full"):
        return
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=500,
                                env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    expect("exit code 1 on a full disk", result.returncode == 1 and
           re.fullmatch(f"{NAME}: standard output cannot be written(: No space left on device)?\n", result.stderr) is not None, result)


def check_every_program() -> None:
    expect_output(["--version"], 0, rf"^{NAME} \d+\.\d+\.\d+$")
    expect_output(["--help"], 0, r"--version", r"--help")
    expect_error(["--unknown"], 2, rf"--unknown \(see {NAME} --help\)$")
    expect_full_disk("--version")
    expect_full_disk("--help")


def safetensors(metadata: dict, shapes: dict) -> bytes:
    """A file of zeros in float64."""
    header, end = {"__metadata__": metadata}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 8 * math.prod(shape)
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


def check_polyphase(folder: Path) -> None:
    cases, trace = str(DATA / "conv1d_small.safetensors"), str(DATA / "train_adamw_mse.safetensors")
    generator = str(DATA / "hifigan_resblock2.safetensors")
    expect_output(["--version"], 0, r"^polyphase \d+\.\d+\.\d+$")
    expect_output(["--help"], 0, r"check", r"info", r"bench")
    expect_output(["info", "--threads", "1"], 0, r"^polyphase +\d", r"^devices +cpu", r"in use \w+", r"threads +1 ",
                  r"^precision +fp32", r"cpu +live")
    expect_output(["check", cases, trace, generator], 0, r"^ok +\S+ +conv_transpose1d \(",
                  r"^ok +final +adamw mse f64, 20 steps", r"^ok +audio +HiFi-GAN",
                  r"^\d+ passed, 0 failed, 0 skipped; the worst uses 0\.\d+ of its tolerance")
    quiet = expect_output(["check", "-q", cases, "--dtype", "f64", "--algorithm", "reference", "--threads", "1"], 0,
                          "passed, 0 failed")
    expect("one line when quiet", len(quiet.stdout.splitlines()) == 1, quiet)
    expect_output(["check", cases, "--algorithm", "depthwise"], 0, r"^skip +\S+ +.*needs G == C_in", r"[1-9]\d* skipped")
    # Nothing was checked, so this is no success.
    expect_output(["check", trace, "--algorithm", "depthwise"], 1, r"^0 passed, 0 failed, 1 skipped$")

    spoilt = bytearray((DATA / "hifigan_resblock2.safetensors").read_bytes())
    length = int.from_bytes(spoilt[:8], "little")
    begin = json.loads(spoilt[8:8 + length])["audio"]["data_offsets"][0]
    spoilt[8 + length + begin + 6] ^= 8  # a high bit of one sample's fraction
    (folder / "spoilt").write_bytes(spoilt)
    expect_output(["check", str(folder / "spoilt")], 1, r"^FAIL +audio", r"^0 passed, 1 failed")
    (folder / "short").write_bytes(spoilt[:-1])
    (folder / "empty").write_bytes(b"")
    expect_error(["check", str(folder / "short")], 1, r"short: .*past the data")
    expect_error(["check", str(folder / "empty")], 1, r"empty: expected at least 8 bytes")
    expect_error(["check", str(folder)], 1, r"Is a directory")
    # A file that cannot be checked is named, and the others are checked.
    (folder / "odd").write_bytes(safetensors({"net": "Conv1d(2,2,1)", "optimizer": "sgd", "learning_rate": "1", "loss": "mse", "steps": "1"},
                                             {"init/0.weight": [2, 2, 3], "x": [1, 2, 3], "target": [1, 2, 3], "losses": [1]}))
    result = expect_output(["check", "-q", str(folder / "odd"), str(folder / "missing"), trace], 1, r"^4 passed, 0 failed, 0 skipped")
    expect("both unreadable files are named", re.search(r"^polyphase: check: \S+/odd: .*\npolyphase: \S+ \S+/missing: .*No such file",
                                                        result.stderr) is not None, result)
    expect_output(["check", trace, generator, cases, "--dtype", "f16"], 0, r"^skip .* there is no tolerance for f16$",
                  r"^\d+ passed, 0 failed, 2 skipped")
    expect_error(["check", str(folder / "missing")], 1, r"No such file")
    expect_error(["check", cases, "--device", "cuda:99"], 1, r"cuda:99")
    expect_error(["check", cases, "--device", "tpu"], 2, r'expected "cpu", "cuda" or "cuda:N", got "tpu"')
    expect_error(["check", cases, "--algorithm", "magic"], 2, r"magic")
    expect_error(["check", cases, "--precision", "fp8"], 2, r"fp8")
    expect_error(["check", cases, "--dtype", "i64"], 2, r"expected f32, f64, f16 or bf16, got i64")
    expect_error(["check", cases, "--threads", "0"], 2, r"threads")
    expect_error(["check"], 2, r"expected at least one file")
    expect_error([], 2, r"expected a subcommand: run, networks, inspect, convert, info, check or bench")
    expect_error(["check", "--unknown"], 2, r"--unknown")
    expect_error(["inf"], 2, r"expected a subcommand: run, networks, inspect, convert, info, check or bench, got inf \(see")
    expect_error(["check", cases, "--precision"], 2, r"--precision: 1 required")
    expect_error(["bench", "--repeat", "99999999999999999999"], 2, r"--repeat: .*99999999999999999999")
    expect_full_disk("info")

    result = expect_output(["info", "--threads", "1", "--json"], 0)
    info = json.loads(result.stdout)
    expect("info as JSON", info["version"] in run("--version").stdout and info["threads"] == 1 and info["devices"][0]["name"] == "cpu" and
           info["cpu_isa"] in info["cpu_isas"] and info["precision"] == "fp32" and info["machine_bytes"] > info["machine_free_bytes"] > 0 and
           (info["cuda_problem"] is None) == (len(info["devices"]) > 1), result)
    for name, config in (("no_json", "{"), ("no_rates", '{"resblock": "1"}')):
        (folder / name).write_bytes(safetensors({"config": config}, {"mel": [1, 1, 1], "audio": [1, 1, 1]}))
        result = run("check", str(folder / name))
        expect("the library's own words for its exceptions are not shown", result.returncode == 1 and f"/{name}: " in result.stderr and
               "json.exception" not in result.stderr and len(result.stderr.splitlines()) == 1, result)

    table = str(folder / "bench.json")
    bench = ["bench", "--shapes", "hifigan_up0", "--directions", "forward,wgrad", "--repeat", "1", "--threads", "1"]
    result = expect_output([*bench, "--json", table], 0, r"hifigan_up0 +forward", r"hifigan_up0 +wgrad")
    records = json.loads(Path(table).read_text())["records"]
    expect("two records in the JSON", [r["direction"] for r in records] == ["forward", "wgrad"], result)
    expect_error(["bench", "--shapes", "Z"], 2, r"Z not in")
    expect_error(["bench", "--directions", "up"], 2, r"expected forward, dgrad or wgrad, got up")
    result = run(*bench, "--json", str(folder / "no/such.json"))
    expect("a table that cannot be written, before anything is timed",
           result.returncode == 1 and "No such file" in result.stderr and not result.stdout, result)
    expect_error([*bench, "--algorithm", "tensor_core"], 1, r"bench: no case can be timed: .*tensor_core")
    check_networks(folder)


def npy(descr: str, shape: tuple, data: bytes) -> bytes:
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def check_networks(folder: Path) -> None:
    """run, inspect, convert and networks, with the small generator of a golden file."""
    golden = (DATA / "hifigan_resblock2.safetensors").read_bytes()
    length = int.from_bytes(golden[:8], "little")
    header = json.loads(golden[8:8 + length])
    config = json.loads(header["__metadata__"]["config"])
    rows = config["num_mels"]
    (folder / "config.json").write_text(json.dumps({**config, "sampling_rate": 8000}))
    kept = {name: value for name, value in header.items() if name.startswith("state_dict/")}
    renamed, data = {}, b""
    for name, value in kept.items():
        begin, end = value["data_offsets"]
        renamed["generator." + name.removeprefix("state_dict/")] = {**value, "data_offsets": [len(data), len(data) + end - begin]}
        data += golden[8 + length + begin:8 + length + end]
    text = json.dumps(renamed).encode()
    model, mel = str(folder / "g_1"), str(folder / "mel.npy")
    Path(model).write_bytes(len(text).to_bytes(8, "little") + text + data)
    frames = 40
    Path(mel).write_bytes(npy("<f4", (rows, frames), struct.pack(f"<{rows * frames}f", *(math.sin(i) for i in range(rows * frames)))))
    expect_output(["networks"], 0, r"^hifigan +\S")
    expect_output(["inspect", model], 0, r"^network +hifigan$", rf"^input +mel \(N, {rows}, frames\)$", r"^sees +\d+ frames", r"^work +\d+ thousand",
                  r"^memory +\S+ MiB of weights", r"^layers, and what is fused", r"^  conv_pre +Conv1d +weight \(.*; then LeakyReLU$",
                  r"^  resblocks\.0\.convs\.0 +Conv1d +weight .*; reads LeakyReLU, adds the residual$", r"^  conv_post .*; then Tanh$")
    converted = str(folder / "g_1.safetensors")
    expect_output(["convert", model, converted], 0, r"hifigan, \d+ parameters$")
    for name, source, extra in (("a.npy", model, []), ("b.npy", converted, ["--chunk", "7"]), ("c.npy", converted, ["--stream", "3", "--threads", "1"]),
                                ("d.npy", converted, ["--memory", "200MB"])):
        result = run("run", source, mel, str(folder / name), *extra)
        expect(f"{name} is written", result.returncode == 0 and "times real time" in result.stderr, result)
    expect("the same samples in every way", len({(folder / name).read_bytes() for name in ("a.npy", "b.npy", "c.npy", "d.npy")}) == 1, result)
    result = run("run", converted, mel, str(folder / "a.wav"), "--picture", str(folder / "a.png"), "--format", "float32")
    wav, png = (folder / "a.wav").read_bytes(), (folder / "a.png").read_bytes()
    expect("a WAV file and a picture", result.returncode == 0 and wav[:4] == b"RIFF" and png.startswith(b"\x89PNG") and
           int.from_bytes(wav[4:8], "little") == len(wav) - 8, result)
    piped = subprocess.run([PROGRAM, "run", converted, "-", "-", "--raw"], input=Path(mel).read_bytes(), capture_output=True, timeout=500, check=False)
    expect("pipes", piped.returncode == 0 and len(piped.stdout) * 2 == len((folder / "a.npy").read_bytes()) - 128, piped)
    (folder / "wide.npy").write_bytes(npy("<f4", (rows + 1, 2), bytes(8 * (rows + 1))))
    (folder / "notes.txt").write_text("hello")
    out = str(folder / "no.wav")
    for arguments, code, pattern in (
            (["run", model, mel], 2, r"expected MODEL IN OUT"),
            (["run", model, str(folder / "wide.npy"), out], 1, rf"wide\.npy: expected mel \({rows}, frames\)"),
            (["run", model, str(folder / "notes.txt"), out], 1, r"notes\.txt: .*begins with"),
            (["run", str(folder / "notes.txt"), mel, out], 1, r"notes\.txt"),
            (["run", model, mel, out, "--memory", "1"], 1, r"mel\.npy: decode: expected at least \d+ bytes"),
            (["run", model, mel, out, "--memory", "much"], 2, r"--memory: expected a size as 800MB or 16GiB, got much"),
            (["run", model, mel, out, "--chunk", "3", "--stream", "3"], 2, r"expected only one of them"),
            (["run", model, mel, out, "--codebooks", "2"], 1, r"--codebooks: expected a network that takes codes"),
            (["run", model, mel, out, "--precision", "fp8"], 2, r"--precision: expected fp32, tf32, ieee, f16, bf16 or f64, got fp8"),
            (["run", model, mel, mel, out], 1, r"expected a folder for 2 inputs"),
            (["run", model, mel, out, "--config", str(folder / "notes.txt")], 1, r"config: --config: "),
            (["run", model, mel, out, "--network", "nonesuch"], 1, r"got nonesuch"),
            (["inspect", mel], 1, r"mel\.npy: expected the tensors of one of"),
            (["convert", model, str(folder / "no/such.safetensors")], 1, r"No such file")):
        expect_error(arguments, code, pattern)
    expect("nothing is written where something is wrong", not os.path.exists(out), result)


def check_quickstart(folder: Path) -> None:
    model = folder / "model.safetensors"
    result = expect_output([str(model)], 0, r"^step +1 ",
                           r"^new signals: network (\d+\.\d) dB, linear interpolation (-?\d+\.\d) dB$")
    network, linear = map(float, re.search(r"network (\S+) dB, linear interpolation (\S+) dB", result.stdout).groups())
    expect("the network beats interpolation by 6 dB", network > linear + 6, result)
    data = model.read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    expect("PyTorch's keys", sorted(header) == ["0.bias", "0.weight", "2.bias", "2.weight", "4.bias", "4.weight"], result)
    expect_error(["a", "b"], 2, r"not expected: b")
    (folder / "elsewhere").mkdir()
    os.environ["TMPDIR"] = str(folder / "elsewhere")
    result = run()
    expect("without an argument in the folder for temporary files, and nowhere else", result.returncode == 0 and
           (folder / "elsewhere/quickstart.safetensors").read_bytes() == data and
           {path.name for path in folder.iterdir()} == {"elsewhere", "model.safetensors"}, result)
    expect_error([str(folder / "no/such/place")], 1, r"No such file")


def check_compare_backends(folder: Path) -> None:
    small = ["--shape", "2,8,8,4,32,2,1"]
    result = expect_output(small, 0, r"^x \(2, 8, 32\), weight \(8, 8, 4\) -> y \(2, 8, 64\), f32", r"^forward ",
                           r"^dgrad ", r"^wgrad ")
    rows = [row.split() for row in result.stdout.splitlines() if re.match("forward|dgrad|wgrad", row)]
    errors = [float(row[i]) for row in rows for i in (1, 2, 3)]
    expect("nine errors of float32's size", len(errors) == 9 and all(0 < e < 1e-5 for e in errors), result)
    expect_output([*small, "--a", "cpu,gemm,ieee", "--b", "cpu,gemm,ieee", "--threads", "1"], 0,
                  r"^forward +\S+ +\S+ +0\.00e\+00")
    expect_output([*small, "--dtype", "f16"], 0, r"f16")
    expect_full_disk(*small)
    expect_error(["--a", "tpu"], 2, r"tpu")
    expect_error(["--a", "cpu,magic"], 2, r"magic")
    expect_error(["--a", "cpu,gemm,ieee,more"], 2, r"expected DEVICE")
    expect_error(["--shape", "1,2,x"], 2, r"--shape: expected a whole number of 64 bits, got x ")
    expect_error(["--shape", "1,99999999999999999999"], 2, r"--shape: expected a whole number of 64 bits, got 99999999999999999999 ")
    expect_error(["--dtype", "q"], 2, r"--dtype: expected f32, f64, f16 or bf16, got q ")
    expect_error(["--shape", "1,2,3,4,5,6,7,8,9,0"], 2, r"expected G >= 1")
    expect_error(["--shape", "1,8,8,2,4,1,9"], 1, r"conv_transpose1d")
    expect_error([*small, "--a", "cpu,depthwise"], 1, r"depthwise")
    expect_error([*small, "--b", "cuda:99"], 1, r"cuda:99")


def check_superres(folder: Path) -> None:
    out = ["--out", str(folder / "run")]
    for arguments, pattern in (
            ([], r"expected a subcommand: train, eval or upsample \(see"),
            (["trian"], r"expected a subcommand: train, eval or upsample, got trian \(see"),
            (["upsample", "in.wav", "out.wav", "--format", "mp3"], r"--format: expected pcm16, pcm24 or float32, got mp3 \(see"),
            (["train", "--seed", "-1"], r"--seed: expected a whole number from 0 to 2\^64 - 1, got -1 "),
            (["train", "--seed", "18446744073709551616"], r"--seed: expected a whole number from 0 to 2\^64 - 1, got 18446744073709551616 "),
            (["train", "--steps", "99999999999999999999"], r"--steps: expected a whole number of 64 bits, got 99999999999999999999 "),
            (["train", "--factor", "99999999999"], r"--factor: expected another value, got 99999999999 "),
            (["train", "--lr", "x"], r"--lr: expected a number, got x "),
            (["train", "--lr", "1e999"], r"--lr: expected a number, got 1e999 "),
            (["train", "--minutes", "0"], r"--minutes: expected a number above 0, got 0 "),
            (["train", "--check-every", "-3"], r"--check-every: expected a number above 0, got -3 "),
            (["train", "--steps", "5", "--minutes", "2"], r"--minutes.*: expected only one of them "),
            (["train", "--batch", "0"], r"expected --batch in 1..4096, got 0 "),
            (["train", "--device", "tpu"], r'expected "cpu", "cuda" or "cuda:N", got "tpu" ')):
        expect_error(arguments + (out if arguments[:1] == ["train"] else []), 2, pattern)
    result = run("upsample", "in.wav", "out.wav", "--format", "mp3")
    expect("only characters that can be printed", result.stderr.rstrip("\n").isprintable(), result)
    # The system refuses to look at this name; the library's exception says "filesystem error: ...".
    result = run("eval", "--model", "x" * 5000 + "/y")
    expect("one sentence for a name that is too long", result.returncode == 1 and len(result.stderr.splitlines()) == 1 and
           "filesystem error" not in result.stderr and "File name too long" in result.stderr, result)
    expect("nothing is made", not (folder / "run").exists(), result)


def check_training_step(folder: Path) -> None:
    expect_error(["--repeat", "0"], 2, r"--repeat: expected a number above 0, got 0 ")
    expect_error(["--repeat", "1", "--graph"], 1, r"--graph: expected a GPU")


def check_allocator(folder: Path) -> None:
    expect_error(["--repeat", "-1"], 2, r"--repeat: expected a number above 0, got -1 ")
    expect_error(["--repeat", "2.5"], 2, r"--repeat: expected a whole number of 64 bits, got 2.5 ")


def check_cold_start(folder: Path) -> None:
    expect_output(["cpu"], 0, r"^first result: -?\d\.\d+ after \d+\.\d+ s in main$")
    expect_full_disk("cpu")
    expect_error(["tpu"], 1, r'expected "cpu", "cuda" or "cuda:N", got "tpu"')


def check_network_roofline(folder: Path) -> None:
    table = folder / "roofline.json"
    result = expect_output(["--match", "encodec_24k_1x1frames", "--threads", "1", "--json", str(table)], 0, r"^encodec_24k_1x1frames fp32 on cpu: copy ",
                           r"^decoder\.model\.1\.lstm +Residual ", r"^all parts ", r"^the network in one call, eager ")
    whole = json.loads(table.read_text())
    parts = whole["parts"]
    expect("parts with work, times and floors", len(parts) > 10 and sum(part["macs"] for part in parts) > 1e6 and
           all(part["bytes"] > 0 and part["floor_us"] > 0 and part["us"] >= 0 for part in parts), result)
    # The sum of three branches: the branches' parts, and their sum.
    result = expect_output(["--match", "hifigan_v3_1x861", "--json", str(table)], 0, r"^conv_pre +Conv1d \+ LeakyReLU ", r" +MeanOfBranches of 3 ",
                           r"^resblocks\.0\.convs\.0 +Residual ", r"^conv_post +Conv1d \+ Tanh ")
    expect_error([], 2, r"--match: expected one case, got hifigan_v1_16x861 and hifigan_v1_1x861")
    expect_error(["--match", "hifigan"], 2, r"--match: expected one case, got hifigan_v1_16x861 and hifigan_v1_1x861")
    expect_error(["--match", "nothing"], 2, r"--match: no forward case of network_cases\.hpp matches 'nothing'")
    expect_error(["--match", "mimi_decode_1x1f", "--precision", "fp16"], 2, r"expected fp32, tf32, ieee, f16, bf16 or f64, got fp16")


def check_data_independence(folder: Path) -> None:
    table = folder / "data.json"
    result = expect_output(["--device", "cpu", "--json", str(table)], 0, r"^conv_tiny \| forward \| fp32 \| automatic \| half_1e-2 \| between \| ",
                           r"^up_tiny \| wgrad \| fp32 \| automatic \| gradient_by_output \| between \| ")
    records = json.loads(table.read_text())["records"]
    cases = {(r["shape"], r["direction"], r["data"]) for r in records}
    kinds = {shape: {r["data"] for r in records if (r["shape"], r["direction"]) == (shape, "forward")} for shape in ("conv_tiny", "up_tiny")}
    expect("every case once", len(cases) == len(records) and len(kinds["conv_tiny"]) == 29 and kinds["conv_tiny"] == kinds["up_tiny"], result)
    expect("a weight gradient has no weights", {r["data"] for r in records if r["direction"] == "wgrad" and "weights" in r["data"]} == set() and
           {r["data"] for r in records if r["direction"] == "wgrad" and r["data"] == "gradient_1e-30"} != set(), result)
    expect("both kinds of mixture, with times", {r["mixed"] for r in records} == {"between", "within"} and
           all(r["us_burst"] > 0 and r["us_normal"] > 0 and 0 < r["error"] < 1e-6 for r in records), result)
    expect_output(["--device", "cpu", "--shapes", "up_tiny", "--directions", "dgrad", "--data", "speech", "--kernels", "automatic"], 0,
                  r"\A[^\n]*\n[^\n]*\nup_tiny \| dgrad \| fp32 \| automatic \| speech \|[^\n]*\n\Z")
    expect_output(["--device", "cpu", "--seconds", "1e-9", "--data", "spikes"], 0, r"^out of time: 12 cases left out, from conv_tiny forward")
    expect_error(["--shapes", "Z"], 2, r"--shapes: no shape of .* is called 'Z'")
    expect_error(["--data", "half_2"], 2, r"--data: no kind .* is called 'half_2'")
    expect_error(["--directions", "step"], 2, r"--directions: expected forward, dgrad or wgrad, got 'step'")
    expect_error(["--precisions", "bf16"], 2, r"--precisions: expected fp32 or tf32, got 'bf16'")
    expect_error(["--kernels", "magic"], 2, r"--kernels: .*magic")
    expect_error(["--device", "tpu"], 2, r"--device: expected cpu or cuda:0, got 'tpu'")
    expect_error(["--seconds", "0"], 2, r"--seconds: expected a number above 0, got 0 ")
    expect_error(["--device", "cpu", "--audio", str(folder / "no.wav")], 1, r"no\.wav|--audio")
    expect_full_disk("--device", "cpu", "--shapes", "up_tiny", "--data", "spikes")


with tempfile.TemporaryDirectory() as temporary:
    check_every_program()
    globals()[f"check_{NAME}"](Path(temporary))
print(f"test cases: {COUNTS['passed']} passed, {COUNTS['failed']} failed, 0 skipped")
sys.exit(1 if COUNTS["failed"] else 0)
