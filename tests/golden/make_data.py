#!/usr/bin/env python3
"""Makes the small golden files in the repository. usage: make_data.py GOLDEN_FOLDER

From the golden files that PyTorch computed: the smallest convolution cases of each kind, and whole training traces.
Generators are computed here, in float64 and plain Python, following the reference implementation of HiFi-GAN.
"""
import json
import math
import random
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "data"
CASE_BYTES = 4000  # larger convolution cases are omitted
SIZES = {"F32": 4, "F64": 8}
CODES = {"F32": "f", "F64": "d"}


def read(path: Path) -> tuple[dict, dict]:
    """{name: (dtype, shape, bytes)} and the metadata."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length:]
    return {k: (v["dtype"], v["shape"], body[slice(*v["data_offsets"])]) for k, v in header.items()}, metadata


def write(path: Path, tensors: dict, metadata: dict) -> None:
    header, end = {"__metadata__": metadata}, 0
    ordered = sorted(tensors.items(), key=lambda item: -SIZES[item[1][0]])
    for name, (dtype, shape, data) in ordered:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, (_, _, data) in ordered))
    print(f"{path.name}: {path.stat().st_size} bytes")


def cut_cases(source: Path) -> None:
    tensors, metadata = read(source)
    kept, seen = {}, set()
    size = {case: sum(len(t[2]) for n, t in tensors.items() if n.startswith(case + "/")) for case in metadata}
    for case in sorted(metadata, key=size.get):
        shape_rank = len(tensors[case + "/x"][1])
        kind = (metadata[case], shape_rank, case + "/bias" in tensors)  # one of each setting
        if size[case] <= CASE_BYTES and kind not in seen:
            seen.add(kind)
            kept[case] = metadata[case]
    write(HERE / "conv1d_small.safetensors",
          {n: t for n, t in tensors.items() if n.split("/")[0] in kept}, dict(sorted(kept.items())))


# ---- HiFi-GAN; a tensor is a list of rows -------------------------------------------------------------------------------

def leaky(x: list, slope: float) -> list:
    return [[v if v > 0 else slope * v for v in row] for row in x]


def conv1d(x: list, layer: tuple, padding: int, dilation: int = 1) -> list:
    weight, bias = layer
    length, taps = len(x[0]), len(weight[0][0])
    out = []
    for w_out, b in zip(weight, bias):
        row = []
        for t in range(length + 2 * padding - dilation * (taps - 1)):
            total = b
            for w_in, x_in in zip(w_out, x):
                for k, w in enumerate(w_in):
                    i = t + k * dilation - padding
                    if 0 <= i < length:
                        total += w * x_in[i]
            row.append(total)
        out.append(row)
    return out


def conv_transpose1d(x: list, layer: tuple, stride: int, padding: int) -> list:
    weight, bias = layer
    taps = len(weight[0][0])
    length = (len(x[0]) - 1) * stride - 2 * padding + taps
    out = [[b] * length for b in bias]
    for w_in, x_in in zip(weight, x):
        for row, w in zip(out, w_in):
            for i, value in enumerate(x_in):
                for k, tap in enumerate(w):
                    if 0 <= i * stride + k - padding < length:
                        row[i * stride + k - padding] += tap * value
    return out


def add(a: list, b: list) -> list:
    return [[p + q for p, q in zip(r, s)] for r, s in zip(a, b)]


def resblock(x: list, layers: dict, name: str, config: dict, block: int) -> list:
    kernel = config["resblock_kernel_sizes"][block]
    for i, dilation in enumerate(config["resblock_dilation_sizes"][block]):
        padding = (kernel * dilation - dilation) // 2
        if config["resblock"] == "1":
            y = conv1d(leaky(x, 0.1), layers[f"{name}.convs1.{i}"], padding, dilation)
            y = conv1d(leaky(y, 0.1), layers[f"{name}.convs2.{i}"], (kernel - 1) // 2)
        else:
            y = conv1d(leaky(x, 0.1), layers[f"{name}.convs.{i}"], padding, dilation)
        x = add(x, y)
    return x


def generator(mel: list, layers: dict, config: dict) -> list:
    x = conv1d(mel, layers["conv_pre"], 3)
    blocks = len(config["resblock_kernel_sizes"])
    for stage, (rate, kernel) in enumerate(zip(config["upsample_rates"], config["upsample_kernel_sizes"])):
        x = conv_transpose1d(leaky(x, 0.1), layers[f"ups.{stage}"], rate, (kernel - rate) // 2)
        branches = [resblock(x, layers, f"resblocks.{stage * blocks + j}", config, j) for j in range(blocks)]
        total = branches[0]
        for branch in branches[1:]:
            total = add(total, branch)
        x = [[v / blocks for v in row] for row in total]
    return [[math.tanh(v) for v in row] for row in conv1d(leaky(x, 0.01), layers["conv_post"], 3)]


def unpack(tensor: tuple):
    dtype, shape, data = tensor
    values = list(struct.unpack(f"<{len(data) // SIZES[dtype]}{CODES[dtype]}", data))
    for size in reversed(shape[1:]):
        values = [values[i:i + size] for i in range(0, len(values), size)]
    return values


def fold(tensors: dict) -> dict:
    """{layer: (weight, bias)} with w = g*v/||v||, the norm over all but the first dimension."""
    layers = {}
    for name in (n.removesuffix(".bias") for n in tensors if n.endswith(".bias")):
        if name + ".weight" in tensors:
            weight = unpack(tensors[name + ".weight"])
        else:
            weight = []
            for g, v in zip(unpack(tensors[name + ".weight_g"]), unpack(tensors[name + ".weight_v"])):
                norm = math.sqrt(sum(tap * tap for row in v for tap in row))
                weight.append([[tap * g[0][0] / norm for tap in row] for row in v])
        layers[name] = (weight, unpack(tensors[name + ".bias"]))
    return layers


def run_generator(tensors: dict, metadata: dict) -> list:
    state = {n.removeprefix("state_dict/"): t for n, t in tensors.items() if n.startswith("state_dict/")}
    layers, config = fold(state), json.loads(metadata["config"])
    return [generator(mel, layers, config) for mel in unpack(tensors["mel"])]


def check_against_pytorch(source: Path) -> None:
    tensors, metadata = read(source)
    ours = [v for sample in run_generator(tensors, metadata) for row in sample for v in row]
    theirs = struct.unpack(f"<{len(ours)}d", tensors["audio"][2])
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"{source.name}: this script and PyTorch differ by at most {worst:.1e}")
    assert worst < 1e-12


def make_generator(name: str, config: dict, frames: int, normalised: bool) -> None:
    rng = random.Random(name)
    tensors = {}

    def draw(key: str, shape: list, deviation: float, mean: float = 0.0) -> None:
        values = [rng.gauss(mean, deviation) for _ in range(math.prod(shape))]
        tensors[key] = ("F32", shape, struct.pack(f"<{len(values)}f", *values))

    def layer(key: str, shape: list, bias: int) -> None:
        draw(f"state_dict/{key}.bias", [bias], 0.1)
        if normalised:
            draw(f"state_dict/{key}.weight_g", [shape[0], 1, 1], 0.2, 1.0)
        draw(f"state_dict/{key}.{'weight_v' if normalised else 'weight'}", shape, 0.15)

    channels = config["upsample_initial_channel"]
    layer("conv_pre", [channels, config["num_mels"], 7], channels)
    names = ["convs1", "convs2"] if config["resblock"] == "1" else ["convs"]
    for stage, kernel in enumerate(config["upsample_kernel_sizes"]):
        layer(f"ups.{stage}", [channels, channels // 2, kernel], channels // 2)
        channels //= 2
        for j, size in enumerate(config["resblock_kernel_sizes"]):
            block = stage * len(config["resblock_kernel_sizes"]) + j
            for i in range(len(config["resblock_dilation_sizes"][j])):
                for part in names:
                    layer(f"resblocks.{block}.{part}.{i}", [channels, channels, size], channels)
    layer("conv_post", [1, channels, 7], 1)
    draw("mel", [2, config["num_mels"], frames], 1.0)
    metadata = {"config": json.dumps(config)}
    audio = [v for sample in run_generator(tensors, metadata) for row in sample for v in row]
    tensors["audio"] = ("F64", [2, 1, len(audio) // 2], struct.pack(f"<{len(audio)}d", *audio))
    write(HERE / f"{name}.safetensors", tensors, metadata)


def main() -> None:
    golden = Path(sys.argv[1])
    HERE.mkdir(exist_ok=True)
    cut_cases(golden / "conv1d_public.safetensors")
    for trace in sorted(golden.glob("train_*.safetensors")):
        write(HERE / trace.name, *read(trace))
    check_against_pytorch(golden / "hifigan_small.safetensors")
    make_generator("hifigan_resblock1", {
        "resblock": "1", "upsample_rates": [4, 2], "upsample_kernel_sizes": [8, 4], "upsample_initial_channel": 8,
        "num_mels": 5, "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1, 3], [1, 2]]}, 6, True)
    make_generator("hifigan_resblock2", {
        "resblock": "2", "upsample_rates": [3, 2], "upsample_kernel_sizes": [7, 4], "upsample_initial_channel": 8,
        "num_mels": 4, "resblock_kernel_sizes": [3, 7], "resblock_dilation_sizes": [[1, 2], [2, 6]]}, 5, False)


if __name__ == "__main__":
    main()
