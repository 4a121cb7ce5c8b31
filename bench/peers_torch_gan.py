#!/usr/bin/env python3
"""Times PyTorch on a training step of HiFi-GAN V1 as published: generator, MPD and MSD, LSGAN, feature matching and mel losses, two AdamW.

    peers_torch_gan.py OURS.json... [--time-budget S] [--peers NAMES] [--check]

OURS.json: records of bench/scaling (suite "scaling"), of one GPU and of two, and of bench/networks (hifigan_v1_gan_16x8192). Adds the
microseconds of a step to their peers, of one GPU "torch_eager" and "torch_graph" (a CUDA graph), of two "torch_ddp" and "torch_ddp_graph"
(DistributedDataParallel over NCCL, which this script starts with torchrun). --peers times only these of them, and "torch_compiled"
(torch.compile of the networks, one GPU), which is timed only if it is asked for, because compiling takes minutes.

The models are those of tests/golden/make_gan.py. Before anything is timed, three steps of a small configuration in float64 on the CPU must
give the losses and gradient norms of tests/golden/gan_hifigan_small.safetensors; --check does only that. The step is tuned as far as its
results allow: discriminators are frozen while the generator learns, the real sound's features need no gradient then, AdamW is fused,
cudnn.benchmark is on, DDP's buckets are the gradients. bf16 is autocast; mels and losses are f32. Timed as bench/scaling does: 12 steps after
a rest of 2 s. Networks on a CPU: the same with one step, to see that it works.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "golden"))

import make_gan  # noqa: E402
import peers  # noqa: E402
import torch_networks  # noqa: E402

warnings.filterwarnings("ignore", category=FutureWarning)  # weight_norm is what the published code uses
GOLDEN = HERE.parent / "tests" / "golden" / "gan_hifigan_small.safetensors"
TOLERANCE = 1e-9  # relative, in float64
DEFAULT_WAYS = ("torch_ddp", "torch_graph", "torch_ddp_graph", "torch_eager")  # what is wanted most first


class Mel(nn.Module):
    """make_gan.Mel on any device, in the dtype of its buffers."""

    def __init__(self, h, f_max):
        super().__init__()
        self.sizes = h["n_fft"], h["hop_size"], h["win_size"]
        filters = make_gan.mel_filters(h["sampling_rate"], h["n_fft"], h["num_mels"], h["fmin"], f_max or h["sampling_rate"] / 2)
        self.register_buffer("filters", torch.from_numpy(filters))
        self.register_buffer("window", torch.hann_window(h["win_size"], dtype=torch.float64))

    def forward(self, y):
        n_fft, hop, win = self.sizes
        y = F.pad(y, ((n_fft - hop) // 2,) * 2, mode="reflect").squeeze(1)
        s = torch.stft(y, n_fft, hop, win, window=self.window, center=False, return_complex=True)
        return torch.log(torch.clamp(self.filters @ torch.sqrt(torch.view_as_real(s).pow(2).sum(-1) + 1e-9), min=1e-5))


def identity(module):
    return module


class Training:
    """The networks and one step of them. `wrap` makes the modules that are called where gradients are needed (DDP)."""

    def __init__(self, h, device, dtype=torch.float32, autocast=None, capturable=False, wrap=identity):
        self.device, self.autocast = device, autocast
        self.generator = make_gan.Generator(h)
        self.discriminators = make_gan.make_discriminators(h)
        for net in (self.generator, *self.discriminators.values()):
            net.to(device, dtype)
        self.mel_in, self.mel_loss = (Mel(h, h[name]).to(device, dtype) for name in ("fmax", "fmax_for_loss"))
        self.called = wrap(self.generator), [wrap(net) for net in self.discriminators.values()]
        self.learned = [p for net in self.discriminators.values() for p in net.parameters()]
        options = {"fused": True, "capturable": capturable} if device != "cpu" else {}
        make = lambda parameters: torch.optim.AdamW(parameters, h["learning_rate"], betas=(h["adam_b1"], h["adam_b2"]), **options)
        self.optim_g, self.optim_d = make(self.generator.parameters()), make(self.learned)

    def precision(self):
        return torch.autocast(torch.device(self.device).type, self.autocast) if self.autocast else contextlib.nullcontext()

    def step(self, y):
        """(4) losses: discriminators, adversarial, feature matching, mel."""
        generator, discriminators = self.called
        with torch.no_grad():
            mel, target = self.mel_in(y), self.mel_loss(y)
        with self.precision():
            fake = generator(mel)
        fake = fake.to(y.dtype)
        loss_d = 0
        with self.precision():
            for net in discriminators:
                for real_maps, fake_maps in zip(*net(y, fake.detach())):
                    score, other = real_maps[-1].to(y.dtype), fake_maps[-1].to(y.dtype)
                    loss_d = loss_d + (1 - score).square().mean() + other.square().mean()
        self.optim_d.zero_grad()
        loss_d.backward()
        self.optim_d.step()
        adversarial, features = self.learn_generator(y, fake)
        mel_distance = 45 * F.l1_loss(self.mel_loss(fake), target)
        self.optim_g.zero_grad()
        (adversarial + features + mel_distance).backward()
        self.optim_g.step()
        return torch.stack([loss.detach() for loss in (loss_d, adversarial, features, mel_distance)])

    def learn_generator(self, y, fake):
        """The losses that come through the discriminators, which are frozen and not wrapped: nothing of theirs is reduced."""
        adversarial, features = 0, 0
        for parameter in self.learned:
            parameter.requires_grad_(False)
        with self.precision():
            for net in self.discriminators.values():
                for real_maps, fake_maps in zip(*net(y, fake)):
                    adversarial = adversarial + (1 - fake_maps[-1].to(y.dtype)).square().mean()
                    features = features + 2 * sum(F.l1_loss(b, a) for a, b in zip(real_maps, fake_maps))
        for parameter in self.learned:
            parameter.requires_grad_(True)
        return adversarial, features


def check():
    """Three steps are those of the golden file."""
    tensors, metadata = torch_networks.read_safetensors(GOLDEN)
    h, rows = json.loads(metadata["config"]), int(metadata["rows"])
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    training, worst = Training(h, "cpu", torch.float64), 0.0
    for name, net in [("generator", training.generator), *training.discriminators.items()]:
        make_gan.fill(name + ".", net)
    for step in range(3):
        losses = training.step(make_gan.sound(step, rows, h["segment_size"]))
        worst = max(worst, float(((losses - tensors["losses"][step]).abs() / tensors["losses"][step].abs()).max()))
    torch.set_default_dtype(default)
    if not worst <= TOLERANCE:
        raise SystemExit(f"peers_torch_gan.py: expected the losses of {GOLDEN.name}, got a relative difference of {worst:.1e}")
    print(f"losses of three steps: {worst:.1e} from {GOLDEN.name}", flush=True)


# ---- timing ----------------------------------------------------------------------------------------------------------------------


def synchronize(device, group):
    if device != "cpu":
        torch.cuda.synchronize()
    if group:
        torch.distributed.barrier()


def step_us(work, device, group):
    """Microseconds a step: 12 steps after a rest of 2 s, as bench/scaling."""
    steps = 1 if device == "cpu" else 12
    if device != "cpu":
        torch.cuda.synchronize()
        time.sleep(2)
    synchronize(device, group)
    begin = time.perf_counter()
    for _ in range(steps):
        work()
    synchronize(device, group)
    return (time.perf_counter() - begin) / steps * 1e6


def captured(make, warm):
    """(training, replay) of a step that was recorded after `warm` others, all on one side stream, as DDP needs it."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        training, work = make()
        for _ in range(warm):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return training, graph.replay


def measure(way, precision, shape, device, group):
    """Microseconds a step of one way on this process' device."""
    h = json.loads((HERE / "networks" / "hifigan_v1.json").read_text(encoding="utf-8"))
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    is_graph = way.endswith("graph")
    wrap = identity
    if group:
        ids = None if device == "cpu" else [torch.cuda.current_device()]
        wrap = lambda net: nn.parallel.DistributedDataParallel(net, ids, gradient_as_bucket_view=True, broadcast_buffers=False)
    elif way == "torch_compiled":
        wrap = torch.compile
    torch.manual_seed(1 + (torch.distributed.get_rank() if group else 0))
    y = (torch.rand(shape) - 0.5).to(device)

    def make():
        training = Training(h, device, autocast=torch.bfloat16 if precision == "bf16" else None, capturable=is_graph, wrap=wrap)
        return training, lambda: training.step(y)

    if is_graph:
        training, work = captured(make, 11 if group else 3)
    else:
        training, work = make()
        for _ in range(1 if device == "cpu" else 5):
            work()
    us = step_us(work, device, group)
    if not all(bool(torch.isfinite(p).all()) for p in training.learned):
        raise RuntimeError("a weight is infinite or NaN")
    return us


def worker(path):
    """One rank under torchrun; rank 0 writes the times behind the ways that the file asks for, after each."""
    asked = json.loads(path.read_text(encoding="utf-8"))
    rank, device = int(os.environ["LOCAL_RANK"]), "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # a graph that holds collectives
    torch.distributed.init_process_group("nccl" if device != "cpu" else "gloo")
    for case in asked["cases"]:
        goes_on = torch.tensor([time.time() < asked["end"]], dtype=torch.float32, device=device)
        torch.distributed.broadcast(goes_on, 0)  # the ranks' clocks differ
        if goes_on.item() == 0:
            break
        try:
            us = measure(case["way"], case["precision"], case["shape"], device, True)
        except RuntimeError as error:
            print(f"{case['way']} {case['precision']}, rank {rank}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
            os._exit(1)  # the ranks no longer agree on what comes next; torchrun ends the others
        case["us"] = us
        if rank == 0:
            path.with_suffix(".done").write_text(json.dumps(asked), encoding="utf-8")
        if device != "cpu":
            torch.cuda.empty_cache()
    sys.stdout.flush()
    os._exit(0)  # captured graphs must not outlive NCCL's communicator: nothing is destroyed


def measure_two(cases, gpus, seconds):
    """The cases with their times, from `gpus` processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cases.json"
        path.write_text(json.dumps({"cases": cases, "end": time.time() + seconds}), encoding="utf-8")
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(gpus), "--master-port", "29517",
                   str(pathlib.Path(__file__).resolve()), "--worker", str(path)]
        job = subprocess.Popen(command)
        try:
            job.wait(seconds + 30)
        except subprocess.TimeoutExpired:
            print(f"{cases[0]['way']}: stopped after {seconds + 30:.0f} s", file=sys.stderr)
            job.terminate()  # torchrun ends its processes
            job.wait()
        done = path.with_suffix(".done")
        cases = json.loads(done.read_text(encoding="utf-8"))["cases"] if done.exists() else []
        return [case for case in cases if "us" in case]


def measured_here(cases, device, left):
    """The cases with their times, in this process."""
    for case in cases:
        if left() <= 0:
            return
        try:
            case["us"] = measure(case["way"], case["precision"], case["shape"], device, False)
            yield case
        except RuntimeError as error:
            print(f"{case['way']} {case['precision']}: {str(error).splitlines()[0]}", file=sys.stderr)
        if device != "cpu":
            torch.cuda.empty_cache()


def gpus_of(record):
    """0: no record of this step."""
    if record.get("network") == "hifigan_v1_gan":
        return record["gpus"]
    return 1 if record.get("network") == "hifigan_v1_gan_16x8192" and record.get("direction") == "step" else 0


def write(files, times):
    """Adds the times by (gpus, precision, way) to the records; each file is written as a whole or not at all."""
    for path, data in files.items():
        for record in data["records"]:
            for (gpus, precision, way), us in times.items():
                if (gpus, precision) == (gpus_of(record), record.get("precision")):
                    peers.add(record, way, us)
        data["torch"] = torch.__version__
        new = path.with_suffix(".new")
        new.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        new.replace(path)


def compare(arguments):
    files = {path: json.loads(path.read_text(encoding="utf-8")) for path in arguments.ours}
    records = [record for data in files.values() for record in data["records"] if gpus_of(record) > 0]
    is_cpu = {data["device"] for data in files.values()} == {"cpu"}
    if not is_cpu:
        peers.require_gpu(torch)
    shape = [arguments.batch, 1, arguments.segment]
    begin = time.perf_counter()
    left = lambda: float("inf") if arguments.time_budget is None else arguments.time_budget - (time.perf_counter() - begin)
    times = {}
    numbers = sorted({gpus_of(record) for record in records})
    for way, gpus in ((way, gpus) for way in arguments.peers or DEFAULT_WAYS for gpus in numbers if ("ddp" in way) == (gpus > 1)):
        precisions = [name for name in ("fp32", "tf32", "bf16") if any(r["precision"] == name and gpus_of(r) == gpus for r in records)]
        cases = [{"way": way, "precision": precision, "shape": shape} for precision in precisions if not (is_cpu and "graph" in way)]
        if left() <= 0 or not cases:
            continue
        for case in measure_two(cases, gpus, min(left(), 3600)) if gpus > 1 else measured_here(cases, "cpu" if is_cpu else "cuda", left):
            times[gpus, case["precision"], way] = case["us"]
            print(f"{gpus} x {'CPU' if is_cpu else 'GPU'} {case['precision']:5}{way:16}{case['us'] / 1e3:10.2f} ms", flush=True)
        write(files, times)  # after each way: a stopped run keeps them
    if not times:
        raise SystemExit("peers_torch_gan.py: nothing was timed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", nargs="*", type=pathlib.Path, help="JSON written by bench/scaling or bench/networks; the peers are added")
    parser.add_argument("--time-budget", type=float, help="seconds after which no new way is begun")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=[], help="such as torch_graph,torch_ddp_graph; default: all")
    parser.add_argument("--batch", type=int, default=16, help="segments of each GPU")
    parser.add_argument("--segment", type=int, default=8192, help="samples of each")
    parser.add_argument("--check", action="store_true", help="only check the models against the golden file")
    parser.add_argument("--worker", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.worker)
    if not arguments.check and not arguments.ours:
        parser.error("expected OURS.json or --check")
    check()
    if not arguments.check:
        compare(arguments)


if __name__ == "__main__":
    main()
