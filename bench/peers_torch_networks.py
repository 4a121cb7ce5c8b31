#!/usr/bin/env python3
"""Times PyTorch on the networks of bench/networks' JSON, and compares.

    peers_torch_networks.py OURS.json [--json MERGED.json] [--golden FOLDER] [--time-budget S] [--peers NAMES] [--no-search] [--check]

The models are those of torch_networks.py and torch_transformers.py: plain PyTorch, weight norm removed, at the sizes of networks/*.json.
Each is first checked in float64 on the CPU against a golden file of the original code, in FOLDER/networks ($POLYPHASE_GOLDEN or
../shared/golden). One that differs is an error and is not timed. --check only checks every model, and needs no OURS.json.

Same inputs, precisions, device, threads and method of timing as in OURS.json. Adds microseconds to the records' peers: on the CPU
"torch_cpu"; on a GPU "torch_eager", "torch_graph" (a CUDA graph), "torch_compiled" (torch.compile), "torch_nhwc" and
"torch_nhwc_compiled" (every convolution as a two-dimensional one in channels-last layout). A step is that of a network with weight norm
and a fused AdamW. A Stream has no peer here, because the plain models keep no state. --peers times only these of them: compiling takes
most of the time. --no-search leaves cuDNN's algorithms to its heuristics, as PyTorch does by default: its search takes minutes on large
batches.
"""

import contextlib
import copy
import json
import os
import pathlib
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import peers
import torch_networks as conv_models
import torch_transformers as transformer_models

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-9  # relative to the peak, in float64

# By the part of a record's network before the size: the model, its configuration in networks/, and the golden file that checks it.
MODELS = {
    "hifigan_v1": (conv_models.HifiGan, "hifigan_v1", "hifigan_v1"),
    "hifigan_v2": (conv_models.HifiGan, "hifigan_v2", "hifigan_v1"),
    "hifigan_v3": (conv_models.HifiGan, "hifigan_v3", "hifigan_v3"),
    "bigvgan_v2_24k_256x": (conv_models.BigVgan, "bigvgan_v2_24k_256x", "bigvgan_6_stages"),
    "bigvgan_v2_44k_512x": (conv_models.BigVgan, "bigvgan_v2_44k_512x", "bigvgan_v2_clamp"),
    "dac_44k": (conv_models.Dac, "dac_44k", "dac_44khz_decoder"),
    "encodec_24k": (conv_models.Encodec, "encodec_24k", "encodec_24khz_decoder"),
    "snac_24k": (conv_models.Snac, "snac_24k", "snac_24khz"),
    "oobleck_2.0": (conv_models.Oobleck, "oobleck_2.0", "oobleck"),
    "vocos_24k": (conv_models.Vocos, "vocos_24k", "vocos_mel"),
    "mimi_decode": (transformer_models.Mimi, "mimi", "mimi"),
    "qwen3_12hz": (transformer_models.Qwen3, "qwen3_12hz", "qwen3_12hz"),
}


def model_of(network):
    return max((name for name in MODELS if network.startswith(name + "_")), key=len, default=None)


# ---- the check against the original code ------------------------------------------------------------------------------------------


def golden_input(net, tensors):
    inputs = {name[len("input/"):]: tensor for name, tensor in tensors.items() if name.startswith("input/")}
    if "codes.1" in inputs:  # SNAC
        net.set_noise([inputs[f"noise.{i}"].double() for i in range(len(inputs)) if f"noise.{i}" in inputs])
        return [inputs[f"codes.{i}"] for i in range(len(inputs)) if f"codes.{i}" in inputs]
    for name in ("codes", "codes.0"):
        if name in inputs:
            return inputs[name]
    return next(inputs[name] for name in ("mel", "latent", "features") if name in inputs).double()


def check(name, golden):
    """The largest difference from the golden file's audio, relative to its peak."""
    model, _, file = MODELS[name]
    path = golden / "networks" / f"{file}.safetensors"
    if not path.is_file():
        raise SystemExit(f"peers_torch_networks.py: expected the golden file {path}, which {name} is checked against; see --golden")
    tensors, metadata = conv_models.read_safetensors(path)
    net = model(json.loads(metadata["config"])).eval()
    weights = {key[len("weights/"):]: tensor for key, tensor in tensors.items() if key.startswith("weights/")}
    conv_models.load(net, conv_models.renamed(net, weights))
    with torch.no_grad():
        difference = (net(golden_input(net, tensors)) - tensors["output/audio"]).abs().max() / tensors["output/audio"].abs().max()
    if not difference.item() <= TOLERANCE:
        raise SystemExit(f"peers_torch_networks.py: {name} differs from {path.name} by {difference:.1e} of the peak, at most {TOLERANCE} is right")
    print(f"{name}: {difference:.1e} of the peak from {path.name}", flush=True)


# ---- timing ----------------------------------------------------------------------------------------------------------------------


class Flat(nn.Module):
    """A convolution along the length as a two-dimensional one of height 1, whose tensors have the channels last in memory."""

    def __init__(self, conv):
        super().__init__()
        is_up = isinstance(conv, nn.ConvTranspose1d)
        more = {"output_padding": (0, conv.output_padding[0])} if is_up else {}
        self.conv = (nn.ConvTranspose2d if is_up else nn.Conv2d)(
            conv.in_channels, conv.out_channels, (1, conv.kernel_size[0]), (1, conv.stride[0]), (0, conv.padding[0]),
            dilation=(1, conv.dilation[0]), groups=conv.groups, bias=conv.bias is not None, **more)
        self.conv.weight = nn.Parameter(conv.weight.detach().unsqueeze(2).contiguous(memory_format=torch.channels_last))
        self.conv.bias = conv.bias
        for name in ("kernel_size", "stride", "dilation"):
            setattr(self, name, getattr(conv, name))

    def forward(self, x):
        return self.conv(x.unsqueeze(2).contiguous(memory_format=torch.channels_last)).squeeze(2)


def flattened(net):
    for name, child in net.named_children():
        if isinstance(child, (nn.Conv1d, nn.ConvTranspose1d)):
            setattr(net, name, Flat(child)) if not name.isdigit() else net.__setitem__(int(name), Flat(child))
        else:
            flattened(child)
    return net


def input_of(net, shape, device, dtype):
    if not hasattr(net, "codebook_size"):
        return torch.randn(shape, device=device, dtype=dtype)
    if isinstance(net, conv_models.Snac):
        # A frame of a record has one code of the slowest codebook and correspondingly more of the others.
        lengths = [shape[-1] * max(net.strides) // stride for stride in net.strides]
        return [torch.randint(net.codebook_size, (shape[0], length), device=device) for length in lengths]
    return torch.randint(net.codebook_size, shape, device=device)


class Forward:
    def __init__(self, net, x):
        self.net, self.x = net, x

    def __call__(self):
        with torch.no_grad():
            return self.net(self.x)


class Step:
    """As in network_work.cpp: mean squared difference, AdamW; f16 and bf16 by autocast."""

    def __init__(self, net, x, dtype, capturable, weight_norm=True):
        for module in net.modules() if weight_norm else ():
            if isinstance(module, (nn.Conv1d, nn.ConvTranspose1d)):
                nn.utils.weight_norm(module)
        self.net, self.x, self.dtype = net.train(), x, dtype
        with torch.no_grad():
            self.target = torch.rand_like(net(x)) - 0.5
        options = {"fused": True, "capturable": capturable} if x.is_cuda else {}
        self.optimizer = torch.optim.AdamW(net.parameters(), 2e-4, betas=(0.8, 0.99), **options)

    def __call__(self):
        is_half = self.dtype in (torch.float16, torch.bfloat16)
        with torch.autocast(self.x.device.type, self.dtype) if is_half else contextlib.nullcontext():
            loss = F.mse_loss(self.net(self.x).float(), self.target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def captured(work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def burst_us(work, device):
    """The median of runs that are waited for, on a GPU with a rest of twice their time between them, as in networks.cpp."""
    def once():
        if device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e6

    first = max(once(), once())
    if first < 2e6:
        once()
    times = []
    for _ in range(int(min(15, max(3, 2e6 / once())))):
        times.append(once())
        if device != "cpu":
            time.sleep(min(2 * times[-1], 1e5) * 1e-6)
    return statistics.median(times)


class Case:
    """All records of one network, precision and direction."""

    def __init__(self, records, device, only):
        self.records, self.device, self.only = records, device, only
        record = records[0]
        model, config, _ = MODELS[model_of(record["network"])]
        self.is_step = record["direction"] == "step"
        self.dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}.get(record["precision"], torch.float32)
        torch.manual_seed(1)
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = record["precision"] == "tf32"
        self.net = model(json.loads((HERE / "networks" / f"{config}.json").read_text(encoding="utf-8"))).to(device).eval()
        if not self.is_step:
            self.net = self.net.to(self.dtype)
        self.x = input_of(self.net, record["input"], device, torch.float32 if self.is_step else self.dtype)

    def work(self, net, capturable=False):
        return Step(copy.deepcopy(net), self.x, self.dtype, capturable) if self.is_step else Forward(net, self.x)

    def ways(self):
        """(peer, function that returns the function to time)."""
        if self.device == "cpu":
            return [("torch_cpu", lambda: self.work(self.net))]
        ways = [("torch_eager", lambda: self.work(self.net)), ("torch_graph", lambda: captured(self.work(self.net, True)))]
        if not self.is_step:
            flat = lambda: flattened(copy.deepcopy(self.net))
            ways += [("torch_compiled", lambda: self.work(torch.compile(self.net))), ("torch_nhwc", lambda: self.work(flat())),
                     ("torch_nhwc_compiled", lambda: self.work(torch.compile(flat())))]
        return [way for way in ways if not self.only or way[0] in self.only]

    def measure(self, budget):
        for name, make in self.ways():
            if budget.spent():
                return
            try:
                us = burst_us(make(), self.device)
            except (RuntimeError, NotImplementedError) as error:  # out of memory, not for this dtype, not to be compiled
                print(f"{self.records[0]['network']} {self.records[0]['precision']} {name}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            for record in self.records:
                peers.add(record, name, us)


def cases_of(data):
    groups = {}
    for record in data["records"]:
        is_plain = "_stream_" not in record["network"] and "_gan_" not in record["network"]  # peers_torch_gan.py times those
        if is_plain and model_of(record["network"]) is not None:
            groups.setdefault((record["network"], record["precision"], record["direction"]), []).append(record)
    return groups


def compare(arguments):
    ours = peers.read(arguments)
    if ours["device"] != "cpu":
        peers.require_gpu(torch)
        torch.backends.cudnn.benchmark = not arguments.no_search
    else:
        torch.set_num_threads(ours["threads"])
    groups = cases_of(ours)
    for name in dict.fromkeys(model_of(network) for network, _, _ in groups):
        check(name, arguments.golden)
    budget, ratios = peers.Budget(arguments.time_budget), {}
    print(f"{'network':34}{'':6}{'mode':7}{'ms':>10}  times of the peers over it")
    device = "cpu" if ours["device"] == "cpu" else ours["device"]
    for records in groups.values():
        if budget.spent():
            continue
        Case(records, device, arguments.peers).measure(budget)
        if device != "cpu":
            torch.cuda.empty_cache()
        for record in records:
            shown = {name: peers.ratio(record, name) for name in record.get("peers", {})}
            for name, ratio in shown.items():
                ratios.setdefault(f"{record['precision']} {record['mode']} over {name}", []).append(ratio)
            print(f"{record['network']:34}{record['precision']:6}{record['mode']:7}{record['us_burst'] / 1e3:10.3f}  "
                  + ", ".join(f"{name} {ratio:.2f}" for name, ratio in shown.items()), flush=True)
        peers.write(arguments, ours)  # earlier measurements stay in the file
    peers.print_means(ratios)
    if budget.left_out:
        print(f"out of time: {budget.left_out} cases left out")
    ours["torch"] = torch.__version__
    peers.write(arguments, ours)


def main():
    parser = peers.parser(__doc__)
    next(action for action in parser._actions if action.dest == "ours").nargs = "?"
    parser.add_argument("--golden", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("POLYPHASE_GOLDEN", HERE.parent.parent / "shared" / "golden")))
    parser.add_argument("--time-budget", type=float, help="seconds after which no new case is begun")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=[], help="such as torch_eager,torch_graph; default: all")
    parser.add_argument("--no-search", action="store_true", help="cuDNN's heuristics instead of its search of algorithms")
    parser.add_argument("--check", action="store_true", help="only check every model against its golden file")
    arguments = parser.parse_args()
    if arguments.check:
        for name in MODELS:
            check(name, arguments.golden)
    elif arguments.ours is None:
        parser.error("expected OURS.json or --check")
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
