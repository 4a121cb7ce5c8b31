#!/usr/bin/env python3
"""tools/gpu_check.sh without a GPU: its help, its refusals, and a run in which replacements stand for all programs that it calls.

usage: check_gpu_check.py SOURCE_ROOT
"""
import json
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

GPU = 'echo "NVIDIA H200, 580.1, 9.0"'
SANITIZER = r"""
[ "$1" = --help ] && { echo "--report-api-errors --base-port"; exit 0; }
case "$*" in
  *initcheck*test_cuda_reduce_reduce*) echo "========= ERROR SUMMARY: 3 errors"; exit 86 ;;
  *synccheck*test_cuda_elementwise_copy*) echo "assertion failed: 1 == 2"; exit 1 ;;
  *racecheck*conv_direct*several?threads*--first=3*--last=3) echo "test cases: 1 passed, 0 failed, 0 skipped"; exit 0 ;;
  *racecheck*conv_direct*--first=5*) echo "test cases: 1 passed, 0 failed, 0 skipped"; echo "Error: Target application terminated before first instrumented API call"; exit 255 ;;
  *racecheck*conv_direct*--first=7*) echo "test cases: 1 passed, 1 failed, 0 skipped"; echo "Error: Target application terminated before first instrumented API call"; exit 255 ;;
  *racecheck*test_cuda_linear_fft*) echo "skipped: cuda:0: no CUDA device"; exit 77 ;;
esac
[ "$POLYPHASE_TEST_REDUCED$POLYPHASE_CUDA_ALLOCATOR" = 1malloc ] || exit 5
case "$*" in
  *test_cuda_*) [ -z "$POLYPHASE_TEST_DEVICE" ] || exit 6 ;;
  *) [ "$POLYPHASE_TEST_DEVICE" = cuda:0 ] || exit 7 ;;
esac
echo "test cases: 4 passed, 0 failed, 0 skipped"
"""
TOOL = r"""
case "$*" in
  *"tensor_core"*) echo "0 passed, 0 failed, 30 skipped"; exit 1 ;;
  *"gemm --precision tf32"*) echo "29 passed, 1 failed, 0 skipped"; exit 1 ;;
esac
echo "30 passed, 0 failed, 0 skipped; the worst uses 0.90 of its tolerance"
"""
NETWORKS = r"""
case "$*" in *"--match nothing"*) echo "networks: no case is selected"; exit 1 ;; esac
echo "$*" >"${0%/*}/networks.arguments"
echo '{"suite": "networks", "device": "cuda:0", "records": [{"network": "mimi_decode_1x10s", "precision": "fp32", "direction": "forward",
  "mode": "graph", "us_burst": 4000, "us_sustained": 4100, "peak_mib": 300}, {"network": "mimi_decode_1x10s", "precision": "fp32",
  "direction": "forward", "mode": "eager", "us_burst": 5000, "us_sustained": 5100, "peak_mib": 300}]}' >"${@: -1}"
"""
SCALING = r"""
[ "$NCCL_NVLS_ENABLE" = 0 ] || exit 9
while [ $# -gt 0 ]; do case $1 in --gpus) gpus=$2 ;; --precision) precision=$2 ;; --json) file=$2 ;; esac; shift; done
echo "{\"suite\": \"scaling\", \"device\": \"cuda:0\", \"records\": [{\"network\": \"hifigan_v1_gan\", \"precision\": \"$precision\", \"gpus\": $gpus,
  \"us_burst\": ${gpus}000, \"us_sustained\": ${gpus}100, \"peers\": {}}]}" >"$file"
"""


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "POLYPHASE_COMMIT": "abc1234", **variables}
    return subprocess.run([str(folder / "tools/gpu_check.sh"), *arguments], capture_output=True, text=True, timeout=300, env=environment)


def check_names() -> None:
    """The programs that are sanitized exist as tests."""
    text = (ROOT / "tools/gpu_check_sanitized.sh").read_text(encoding="utf-8")
    names = re.findall(r'^  "([a-z0-9_/]+)(?: [a-z]+(?::[0-9]+)?)*"$', text, re.MULTILINE)
    missing = [name for name in names if not list((ROOT / "tests" / name).parent.glob(f"test_{name.split('/')[-1]}.c*"))]
    COUNTS["passed" if len(names) > 10 and not missing else "failed"] += 1
    if missing or len(names) <= 10:
        print(f"failed: of {len(names)} sanitized programs these are no tests: {missing}")


def check_refusals(folder: Path) -> None:
    program(folder / "bin/nvidia-smi", 'echo "No devices were found"; exit 6')
    result = run(folder, "--help")
    expect("the help", result.returncode == 0 and "--only PART" in result.stdout and "N passed" in result.stdout, result)
    for arguments, words in ((["--only", "tests"], "got 'tests'"), (["--fast"], "unknown argument --fast"), (["--out"], "value after it"),
                             (["--jobs", "0"], "at least 1"), (["--only", ""], "expected a part"),
                             (["--match", "("], "--match: expected a regular expression, got '('"), ([], "no NVIDIA GPU here")):
        result = run(folder, *arguments)
        lines = result.stderr.splitlines()
        expect(f"one line with {words!r}, exit code 2",
               result.returncode == 2 and len(lines) == 1 and lines[0].startswith("gpu_check: ") and words in lines[0], result)


def check_run(folder: Path) -> None:
    program(folder / "bin/nvidia-smi", GPU)
    result = run(folder, "--only", "test")
    expect("nothing built", result.returncode == 2 and "is not built" in result.stderr, result)
    program(folder / "build-gpu/tool/polyphase", TOOL)
    result = run(folder, "--only", "sanitize", "--jobs", "3")
    expect("sanitizers: exit code 1", result.returncode == 1, result)
    for line in (r"^failed +sanitize: initcheck cuda/reduce/reduce +\d+\.\d s  ERROR SUMMARY: 3 errors$",
                 r"^failed +sanitize: synccheck cuda/elementwise/copy .* exit status 1: assertion failed: 1 == 2$",
                 r"^failed +sanitize: racecheck cuda/linear/fft .* it saw no GPU$",
                 r"^passed +sanitize: memcheck cuda/conv/direct/direct .* 4 passed, 0 failed",
                 r"^passed +sanitize: racecheck cuda/conv/direct/direct case 3 .* 1 passed, 0 failed",
                 r"^skipped +sanitize: racecheck cuda/conv/direct/direct case 5 .* its cases use no GPU$",
                 r"^failed +sanitize: racecheck cuda/conv/direct/direct case 7 ", r"^\d+ passed, 4 failed, 1 skipped$"):
        expect(f"a line {line!r}", re.search(line, result.stdout, re.MULTILINE) is not None, result)
    expect("what failed is shown", "assertion failed" in (folder / "build-gpu/check/failures.log").read_text(), result)

    result = run(folder, "--only", "sanitize", "--match", "direct/direct case (3|16)$")
    ran = re.findall(r"sanitize: (\S+ \S+ case \d+) ", result.stdout)
    expect("a match of cases", sorted(ran) == [f"racecheck cuda/conv/direct/direct case {case}" for case in (16, 3)], result)

    result = run(folder, "--only", "sanitize", "--match", "no such check")
    expect("a match of nothing fails", result.returncode == 1 and
           re.search(r"^failed +sanitize: --match 'no such check' .* it finds no check$", result.stdout, re.MULTILINE) is not None, result)

    result = run(folder, "--only", "golden", "--jobs", "2")
    expect("golden files", re.search(r"^failed +golden: gemm tf32 f32 ", result.stdout, re.MULTILINE) is not None and
           re.search(r"^skipped +golden: tensor_core fp32 f16 .* no case is for it$", result.stdout, re.MULTILINE) is not None, result)
    data = json.loads((folder / "build-gpu/check/h200.json").read_text())
    parts = {check["part"] for check in data["checks"]}
    expect("one result of both parts", parts == {"sanitize", "golden"} and data["commit"] == "abc1234", result)
    expect("what it ran on", (data["gpu"], data["driver"], data["cuda"]) == ("NVIDIA H200", "580.1", "13.0"), result)
    table = (folder / "build-gpu/check/gpu_check.md").read_text()
    expect("a table", "| golden" in table and "commit abc1234" in table, result)

    adopted = subprocess.run([sys.executable, str(folder / "bench/report.py"), "adopt", str(folder / "build-gpu/check/h200.json")],
                             capture_output=True, text=True, timeout=60)
    page = (folder / "docs/benchmarks/h200_checks.md").read_text()
    expect("the page", adopted.returncode == 0 and "| gemm tf32 f32" in page and "not run yet" not in page, adopted)

    check_bench(folder)
    check_networks(folder)
    check_scaling(folder)
    check_adopt(folder)
    check_goals(folder)
    result = run(folder, "--only", "golden", POLYPHASE_COMMIT="def5678")
    data = json.loads((folder / "build-gpu/check/h200.json").read_text())
    expect("another commit's results are forgotten", {check["part"] for check in data["checks"]} == {"golden"}, result)


def check_bench(folder: Path) -> None:
    """The part 'bench' in several calls: each replaces the checks that it makes, and keeps the others."""
    for name in ("training_step", "allocator"):
        program(folder / f"build-gpu/bench/{name}",
                f"""echo '{{"suite": "{name}", "device": "cuda:0", "records": [{{"shape": "{name}", "us_burst": 3}}]}}' >"${{@: -1}}\"""")
    for pattern in ("^training_step$", "^allocator$", "^allocator$"):
        result = run(folder, "--only", "bench", "--match", pattern)
    data = json.loads((folder / "build-gpu/check/h200.json").read_text())
    expect("what both calls checked, once each", sorted(check["check"] for check in data["checks"] if check["part"] == "bench") ==
           ["PyTorch", "allocator", "training_step"], result)
    expect("what both calls measured", {"training_step", "allocator"} <= {record["suite"] for record in data["records"]}, result)
    result = run(folder, "--only", "bench", "--match", "no such check")
    expect("a match of no benchmark fails", result.returncode == 1 and
           re.search(r"^failed +bench: --match 'no such check' .* it finds no check$", result.stdout, re.MULTILINE) is not None, result)


def check_scaling(folder: Path) -> None:
    """The part 'scaling': one GPU is timed, two are skipped with the reason; where there are two, both are timed, without NVLink multicast."""
    program(folder / "build-gpu/bench/scaling", SCALING)
    result = run(folder, "--only", "scaling")
    for line in (r"^passed +scaling: scaling, 1 GPU, bf16 ", r"^skipped +scaling: scaling, 2 GPUs .* this machine has one GPU$",
                 r"^skipped +scaling: PyTorch, GAN step .* no torch that sees the GPU$"):
        expect(f"a line {line!r}", re.search(line, result.stdout, re.MULTILINE) is not None, result)
    program(folder / "bin/nvidia-smi", 'case "$1" in --list-gpus) echo one; echo two ;; *) ' + GPU + " ;; esac")
    (folder / "build-gpu/tests/distributed/network").mkdir(parents=True, exist_ok=True)
    program(folder / "build-gpu/tests/distributed/network/test_distributed_network_nccl", 'echo "test cases: 2 passed, 0 failed, 0 skipped"')
    result = run(folder, "--only", "scaling")
    expect("NCCL's operations", re.search(r"^passed +scaling: NCCL ", result.stdout, re.MULTILINE) is not None, result)
    data = json.loads((folder / "build-gpu/check/h200.json").read_text())
    records = {(r["gpus"], r["precision"]): r["us_burst"] for r in data["records"] if r["suite"] == "scaling"}
    expect("a record for each number of GPUs and precision", len(records) == 6 and records[2, "tf32"] == 2000, result)
    program(folder / "bin/nvidia-smi", GPU)


def check_networks(folder: Path) -> None:
    """The part 'networks' alone, with selected cases. Records that differ only in mode are both kept and shown."""
    program(folder / "build-gpu/bench/networks", NETWORKS)
    result = run(folder, "--only", "networks", "--match", "mimi.*1x", "--seconds", "30")
    asked = (folder / "build-gpu/bench/networks.arguments").read_text()
    expect("the networks that were asked for", asked.startswith("--device cuda:0 --match mimi.*1x --time-budget 30 --json "), result)
    for line in (r"^passed +networks: networks ", r"^skipped +networks: PyTorch, networks .* no torch that sees the GPU$"):
        expect(f"a line {line!r}", re.search(line, result.stdout, re.MULTILINE) is not None, result)
    page = folder / "docs/networks.md"
    page.write_text("<!-- table gpu_networks -->\n<!-- end -->\n")
    adopted = subprocess.run([sys.executable, str(folder / "bench/report.py"), "adopt", str(folder / "build-gpu/check/h200.json")],
                             capture_output=True, text=True, timeout=60)
    rows = re.findall(r"^\| mimi_decode_1x10s \| fp32 .*\| (eager|graph) \| +([0-9.]+) \|", page.read_text(), re.MULTILINE)
    expect("their table", adopted.returncode == 0 and rows == [("graph", "4.000"), ("eager", "5.000")], adopted)
    page.unlink()
    result = run(folder, "--only", "networks", "--match", "nothing")
    expect("a match of no network fails", result.returncode == 1 and
           re.search(r"^failed +networks: networks ", result.stdout, re.MULTILINE) is not None, result)


def check_build(folder: Path) -> None:
    """Ninja's output is appended to that of earlier builds, for the check of the kernels, which is one of the checks."""
    program(folder / "bin/ninja", 'echo "[1/1] Compiling Cuda object src/a.cu.o"; exit $(cat ninja_status)')
    (folder / "ninja_status").write_text("0")
    (folder / "tests/structure").mkdir(parents=True, exist_ok=True)
    (folder / "tests/structure/check_ptxas.py").write_text(
        "import sys\nlog = open(sys.argv[sys.argv.index('--log') + 1]).read()\n"
        "print(f\"test cases: 1 passed, {log.count('a.cu.o')} failed, 0 skipped\")\nsys.exit(1)\n")
    for builds in (1, 2):
        result = run(folder, "--only", "build")
        for line in (r"^passed +build: release, every program ", r"^failed +build: no kernel spills, no wgmma is serialised .* exit status 1: "
                     rf"test cases: 1 passed, {builds} failed, 0 skipped$"):
            expect(f"a line {line!r}", re.search(line, result.stdout, re.MULTILINE) is not None, result)
    (folder / "ninja_status").write_text("3")
    result = run(folder, "--only", "build")
    expect("what does not compile is not looked at", re.search(r"^failed +build: release", result.stdout, re.MULTILINE) is not None and
           "no kernel spills" not in result.stdout, result)


def check_adopt(folder: Path) -> None:
    """Repeated checks replace those that failed; the notes of earlier checks name their commit."""
    record = {"suite": "allocator", "shape": "pair", "us_burst": 1}

    def part(name: str, commit: str, results: dict[str, tuple[str, str]], records: list) -> str:
        checks = [{"part": "test", "check": check, "result": result, "seconds": 1, "note": note}
                  for check, (result, note) in results.items()]
        path = folder / name / "cpu.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"commit": commit, "date": "today", "checks": checks, "records": records}))
        return str(path)

    def adopt(*parts: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, str(folder / "bench/report.py"), "adopt", *parts], capture_output=True, text=True,
                              timeout=60)

    before = part("before", "aaaaaaa", {"good": ("passed", "4 passed"), "bad": ("failed", ""), "quiet": ("passed", "")}, [])
    result = adopt(before, part("again", "bbbbbbb", {"bad": ("passed", "2 passed")}, [record]))
    data = json.loads((folder / "docs/benchmarks/cpu.json").read_text())
    notes = {check["check"]: (check["result"], check["note"]) for check in data["checks"]}
    expect("the repaired commit", result.returncode == 0 and data["commit"] == "bbbbbbb" and data["records"] == [record], result)
    expect("checks with their commits", notes == {"good": ("passed", "at aaaaaaa; 4 passed"), "bad": ("passed", "2 passed"),
                                                  "quiet": ("passed", "at aaaaaaa")}, result)
    result = adopt(part("again", "bbbbbbb", {}, [record]), before)
    expect("numbers of an earlier commit are refused", result.returncode != 0 and "got bbbbbbb" in result.stderr, result)
    (folder / "docs/benchmarks/cpu.json").unlink()


def check_goals(folder: Path) -> None:
    """Goals are compared with their records: reached, missed by how much, not measured; each kind of measure once."""
    conv = {"suite": "conv_transpose1d", "shape": "A", "direction": "forward", "precision": "fp32", "roofline_us": 900}
    records = [{**conv, "algorithm": "direct", "us_burst": 9000, "peers": {"cudnn_fp32_ncl": 20000}},
               {**conv, "algorithm": "tensor_core", "us_burst": 2000, "chosen": True, "lost": 0.02, "peers": {"cudnn_fp32_ncl": 20000}},
               {**conv, "precision": "tf32", "algorithm": "tensor_core", "us_burst": 1000, "peers": {"cudnn_tf32_ncl": 3000}},
               {"suite": "training_step", "shape": "toy_4x64", "algorithm": "graph", "us_burst": 150},
               *({"suite": "data_independence", "shape": "C", "direction": "forward", "precision": "fp32", "algorithm": algorithm, "data": kind,
                  "mixed": mixed, "us_burst": us, "us_normal": 100}
                 for algorithm, kind, mixed, us in (("automatic", "half_1e-5", "between", 180), ("automatic", "silence_zeros", "between", 100),
                                                    ("automatic", "spikes", "within", 200), ("stationary", "spikes", "within", 500)))]
    (folder / "run.json").write_text(json.dumps({"commit": "abc1234", "records": records}))
    command = [sys.executable, str(folder / "bench/report.py"), "goals", str(folder / "run.json")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    for row in (r"A, fp32 forward +\| ms +\| +<= 1.85 +\| +2 \| +missed by 8 %",
                r"A, fp32 forward +\| x cudnn_fp32_ncl +\| +>= 9 +\| +10 \| +reached",
                r"A, fp32 forward +\| x cudnn_tf32_ncl +\| +>= 2 +\| +1.5 \| +missed by 33 %",
                r"A, tf32 forward +\| ms +\| +<= 1.2 +\| +\| +not measured",  # the algorithm was not the chosen one
                r"training_step, toy_4x64, graph +\| ms +\| +<= 0.12 +\| +0.15 \| +missed by 25 %",
                r"data_independence, every shape, automatic fp32 forward between +\| times normal data +\| +<= 1.5 +\| +1.8 +\| +missed by 20 %",
                r"data_independence, every shape, automatic fp32 forward within +\| times normal data +\| +<= 2.5 +\| +2 +\| +reached",
                r"data_independence, every shape, stationary within +\| times normal data +\| +<= 2.5 +\| +5 +\| +missed by 100 %",
                r"every shape +\| % lost by the choice +\| +<= 5 +\| +2 \| +reached"):
        expect(f"a row {row!r}", re.search(row, result.stdout) is not None, result)
    script = "import report_goals; print(*(report_goals.verdict(share) for share in (1, 1.0001, 1.004, 1.0096, 1.014)), sep=', ')"
    verdicts = subprocess.run([sys.executable, "-c", script], cwd=folder / "bench", capture_output=True, text=True, timeout=60)
    expect("no miss is one by 0 %", verdicts.stdout == "reached, missed by 0.1 %, missed by 0.4 %, missed by 1 %, missed by 1 %\n", verdicts)
    expect("what they come to", re.search(r"^3 goals reached, 5 missed, \d+ not measured$", result.stdout, re.MULTILINE) is not None, result)


def check_update(folder: Path) -> None:
    """`report.py update` replaces the records of the same network, precision and mode, keeps their peers, and writes the table."""
    record = {"suite": "networks", "network": "mimi_stream_1x1frames", "mode": "graph", "peak_mib": 1, "us_sustained": 1}
    old = [{**record, "precision": "fp32", "us_burst": 900, "commit": "old", "date": "D1", "peers": {"torch_eager": 12345}},
           {**record, "precision": "f16", "us_burst": 800, "commit": "old", "date": "D1"}]
    new = [{**record, "precision": "fp32", "us_burst": 500}, {**record, "network": "dac_44k_16x10s", "precision": "tf32", "us_burst": 99600}]
    (folder / "docs/benchmarks/networks_h200.json").write_text(json.dumps({"device": "a GPU", "records": old}))
    (folder / "docs/networks.md").write_text("<!-- table networks_h200 -->\n<!-- end -->\n")
    (folder / "new.json").write_text(json.dumps({"records": new}))
    result = subprocess.run([sys.executable, str(folder / "bench/report.py"), "update", "networks_h200", str(folder / "new.json"), "--commit",
                             "new", "--date", "D2"], capture_output=True, text=True, timeout=60)
    page = (folder / "docs/networks.md").read_text()
    for row in (r"network +\| fp32 ms \| PyTorch eager \| tf32 ms \| f16 ms \| bf16 ms \| +commits",
                r"DAC 44 kHz, 16 x 10 s +\| +\| +\| +99\.6 \| +\| +\| +new",
                r"Mimi, a push of a Stream, 1 frame +\| +0\.500 \| +12\.3 \| +\| +0\.800 \| +\| +new old"):
        expect(f"a row {row!r}", re.search(row, page) is not None, result)
    records = json.loads((folder / "docs/benchmarks/networks_h200.json").read_text())["records"]
    expect("one record each", [(r["us_burst"], r["commit"], r["date"]) for r in records] ==
           [(500, "new", "D2"), (800, "old", "D1"), (99600, "new", "D2")], result)


with tempfile.TemporaryDirectory() as temporary:
    scratch = Path(temporary)
    for name in ("tools/gpu_check.sh", "tools/gpu_check_sanitized.sh", "tools/gpu_check_bench.sh", "tools/gpu_check_on_request.sh",
                 "tools/count_tests.py", "bench/report.py", "bench/report_elementwise.py", "bench/report_goals.py", "bench/report_networks.py",
                 "bench/report_roofline.py", "bench/report_scaling.py", "docs/benchmarks/goals.json"):
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, scratch / name)
    (scratch / "docs/benchmarks/h200_checks.md").write_text("<!-- table gpu_checks -->\nnot run yet\n<!-- end -->\n")
    program(scratch / "tests/golden/data/conv1d_small.safetensors", "")
    program(scratch / "bin/nvcc", 'echo "Cuda compilation tools, release 13.0, V13.0.88"')
    program(scratch / "bin/meson", "echo 1.12.0")
    program(scratch / "bin/compute-sanitizer", SANITIZER)
    check_names()
    check_refusals(scratch)
    check_run(scratch)
    check_update(scratch)
    check_build(scratch)
print(f"test cases: {COUNTS['passed']} passed, {COUNTS['failed']} failed, 0 skipped")
sys.exit(1 if COUNTS["failed"] else 0)
