"""The package in a process: import, threads, fork, signals, other packages."""
import ast
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polyphase as pp
import pytest
from polyphase import _libraries, _packages

UP = pp.ConvTranspose1d(16, 16, 8, stride=4, padding=2)
X = pp.randn((2, 16, 500))


def run(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, **options)


def test_import_starts_no_threads_and_uses_no_gpu():
    # cuBLAS itself loads the driver's library; using a GPU begins with opening its files.
    code = ("import os, sys, polyphase\n"
            "files = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if os.path.islink(f'/proc/self/fd/{n}')]\n"
            "print(len(os.listdir('/proc/self/task')), any('/dev/nvidia' in file for file in files), 'numpy' in sys.modules)")
    assert run(code).stdout.split() == ["1", "False", "False"]


def test_every_name_is_there_and_documented():
    for name in pp.__all__:
        thing = getattr(pp, name)
        assert name.startswith("_") or thing.__doc__, f"{name} has no docstring"
    assert pp.__version__ and isinstance(pp.cuda.device_count(), int)


def result_of(queue):
    queue.put(UP(X).tolist())


def test_a_forked_child_computes_the_same_bits():
    pp.set_num_threads(2)
    expected = UP(X).tolist()  # threads are running now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=result_of, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    results = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
    assert results == [expected, expected] and [child.exitcode for child in children] == [0, 0]


def test_threads_compute_at_once():
    expected = UP(X).tolist()
    results = [None] * 4

    def work(i):
        for _ in range(5):
            results[i] = UP(X).tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_guards_are_of_their_thread():
    seen = []
    with pp.no_grad():
        thread = threading.Thread(target=lambda: seen.append(pp.grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_other_threads_run_while_one_computes():
    """A pure Python thread makes progress during one long call."""
    counts, stop = [], threading.Event()

    def count():
        while not stop.is_set():
            counts.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    x, w = pp.zeros((1, 32, 8000), dtype="f64"), pp.zeros((32, 32, 8), dtype="f64")
    with pp.AlgorithmGuard("reference"):
        begin = time.monotonic()
        pp.conv_transpose1d(x, w)
        end = time.monotonic()
    stop.set()
    thread.join()
    assert sum(begin < moment < end for moment in counts) >= 3


def test_ctrl_c_ends_a_loop():
    code = """
import signal
import polyphase as pp
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with Ctrl-C ignored
net = pp.Sequential(pp.Conv1d(1, 8, 3, padding=1), pp.Conv1d(8, 1, 3, padding=1))
x = pp.zeros((1, 1, 200))
print("ready", flush=True)
while True:
    net(x)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == "ready"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors


def test_errors_are_also_the_built_in_ones():
    for ours, theirs in [(pp.ShapeError, ValueError), (pp.DTypeError, TypeError), (pp.OutOfMemory, MemoryError), (pp.FormatError, ValueError),
                         (pp.NotImplemented, NotImplementedError), (pp.DeviceError, RuntimeError), (pp.AutogradError, RuntimeError)]:
        assert issubclass(ours, theirs) and issubclass(ours, pp.Error)


def test_more_memory_than_there_is():
    with pytest.raises(MemoryError, match="out of memory: asked 4503599627370496 bytes"):
        pp.empty((1 << 50,))
    with pytest.raises(pp.ShapeError):
        pp.empty((1 << 62, 8))
    assert pp.zeros((2,)).tolist() == [0, 0]


@pytest.mark.skipif(pp.cuda.device_count() > 0, reason="there is a GPU")
def test_a_gpu_that_is_not_there():
    assert pp.cuda.unavailable_reason() and pp.best_device() == "cpu"
    for make in (lambda: pp.zeros((1,), device="cuda"), lambda: pp.Conv1d(1, 1, 1).to("cuda:0"), pp.cuda.Stream, pp.cuda.synchronize,
                 lambda: pp.cuda.capture(lambda: None)):
        with pytest.raises(pp.DeviceError, match="cuda"):
            make()


@pytest.mark.skipif(pp.cuda.device_count() == 0, reason="there is no GPU")
def test_a_forked_child_cannot_use_the_gpu():
    pp.zeros((1,), device="cuda")
    child = os.fork()
    if child == 0:
        try:
            pp.zeros((1,), device="cuda")
        except pp.DeviceError as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_two_packages_are_refused(tmp_path):
    for name in ("polyphase-0.1.0", "numpy-2.0", "polyphase_tools-1.0"):
        (tmp_path / f"{name}.dist-info").mkdir()
    _packages.refuse_two(str(tmp_path))
    (tmp_path / "polyphase_cuda13-0.1.0.dist-info").mkdir()
    with pytest.raises(ImportError, match="polyphase and polyphase-cuda13 are both installed"):
        _packages.refuse_two(str(tmp_path))


def test_cublas_of_a_wheel_is_found(tmp_path, monkeypatch):
    error = ImportError("libcublas.so.13: cannot open shared object file: No such file or directory")
    assert _libraries.missing_library(error) == "libcublas.so.13"
    assert _libraries.missing_library(ImportError("undefined symbol: x")) is None
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ImportError, match="libcublas.so.13 was found neither.*nvidia-cublas==13"):
        _libraries.import_with(error, "polyphase._core")
    library = tmp_path / "nvidia" / "cu13" / "lib" / "libcublas.so.13"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"")
    assert _libraries.find("libcublas.so.13", sys.path) == library
    with pytest.raises(OSError):
        _libraries.import_with(error, "polyphase._core")
    with pytest.raises(ImportError, match="undefined symbol"):
        _libraries.import_with(ImportError("undefined symbol: x"), "polyphase._core")


def test_stubs_have_every_name():
    stubs = Path(pp.__file__).parent / "_core"
    names = {node.name for node in ast.walk(ast.parse((stubs / "__init__.pyi").read_text(encoding="utf-8")))
             if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert set(pp._core.__all__) - names <= {"cuda", "no_grad"}
    ast.parse((stubs / "cuda.pyi").read_text(encoding="utf-8"))
    assert (Path(pp.__file__).parent / "py.typed").is_file()
