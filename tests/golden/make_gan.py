#!/usr/bin/env python3
"""Writes gan_NAME.safetensors: ten training steps of a vocoder against its discriminators, computed by PyTorch in float64.

usage: make_gan.py OUT_DIR NAME...      NAME: hifigan_v1, hifigan_small, bigvgan_small (needs PyTorch and NumPy)

The models are written from the architectures (jik876/hifi-gan@4769534, NVIDIA/BigVGAN@7d2b454). "small" configurations have the
published structure with fewer channels. A file holds, per step, the tensors `losses` (discriminators, adversarial, feature matching,
mel) and `norms` (generator, then each discriminator, before clipping), and in its metadata the configuration and the formulas
of the initial weights and of the sound. tests/golden/test_gan.cpp runs the same steps.
"""
import json
import math
import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm, weight_norm

NOTE = (
    "number(name, i), i from 0: z = fnv1a64(name) + (i + 1)*0x9e3779b97f4a7c15; splitmix64's finaliser of z; u = (z >> 11)*2^-53; "
    "2u - 1. Weights in the state dict's order: weight_g and alpha, beta: 0.75 + 0.25*number and 0.3*number; weight_v, weight_orig, "
    "weight: number/sqrt(elements of a row); the low-pass filters: the tensor `filter`; all others: 0.1*number. The name has the network before it: "
    "'generator.', 'mpd.', 'msd.', 'mrd.'. Sound of row n at sample t in step s: 0.4*sin(0.05*(n + 1)*(t + 100*s)) + "
    "0.1*number('audio', (s*rows + n)*segment + t)."
)
MASK = (1 << 64) - 1


def numbers(name: str, count: int, first: int = 0) -> np.ndarray:
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(h) + (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return 2 * ((z >> np.uint64(11)).astype(np.float64) * 2.0**-53) - 1


def fill(prefix: str, module: nn.Module) -> None:
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            last = name.rsplit(".", 1)[-1]
            if last == "filter":
                continue
            values = torch.from_numpy(numbers(prefix + name, tensor.numel())).reshape(tensor.shape)
            row = tensor.numel() // tensor.shape[0]
            if last == "weight_g":
                values = 0.75 + 0.25 * values
            elif last in ("alpha", "beta"):
                values = 0.3 * values
            elif tensor.dim() > 1:
                values = values / math.sqrt(row)
            else:
                values = 0.1 * values
            tensor.copy_(values)


def sound(step: int, rows: int, length: int) -> torch.Tensor:
    t = np.arange(length, dtype=np.float64)
    audio = np.stack([0.4 * np.sin(0.05 * (n + 1) * (t + 100 * step)) for n in range(rows)])
    noise = numbers("audio", rows * length, step * rows * length).reshape(rows, length)
    return torch.from_numpy(audio + 0.1 * noise).unsqueeze(1)


# ---- generators -------------------------------------------------------------------------------------------------------
def same(channels: int, k: int, d: int) -> nn.Module:
    return weight_norm(nn.Conv1d(channels, channels, k, 1, dilation=d, padding=(k * d - d) // 2))


class LeakyBlock(nn.Module):
    def __init__(self, channels, k, dilations, two):
        super().__init__()
        self.two = two
        if two:
            self.convs1 = nn.ModuleList([same(channels, k, d) for d in dilations])
            self.convs2 = nn.ModuleList([same(channels, k, 1) for _ in dilations])
        else:
            self.convs = nn.ModuleList([same(channels, k, d) for d in dilations])

    def forward(self, x):
        if not self.two:
            for c in self.convs:
                x = x + c(F.leaky_relu(x, 0.1))
            return x
        for a, b in zip(self.convs1, self.convs2):
            x = x + b(F.leaky_relu(a(F.leaky_relu(x, 0.1)), 0.1))
        return x


class SnakeBeta(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        a, b = self.alpha.exp()[None, :, None], self.beta.exp()[None, :, None]
        return x + torch.sin(a * x) ** 2 / (b + 1e-9)


def low_pass() -> torch.Tensor:
    """12 taps, cutoff 0.25, half width 0.3, Kaiser window, float32 arithmetic as torch's default dtype gives it."""
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    k, cutoff, half_width = 12, 0.25, 0.3
    amplitude = 2.285 * (k // 2 - 1) * math.pi * 4 * half_width + 7.95
    beta = 0.1102 * (amplitude - 8.7) if amplitude > 50 else 0.5842 * (amplitude - 21) ** 0.4 + 0.07886 * (amplitude - 21)
    window = torch.kaiser_window(k, beta=beta, periodic=False)
    time = torch.arange(-k // 2, k // 2) + 0.5
    f = 2 * cutoff * window * torch.sinc(2 * cutoff * time)
    f = f / f.sum()
    torch.set_default_dtype(old)
    return f.view(1, 1, k).double()


class Filtered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("filter", low_pass())


class Lowpassed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lowpass = Filtered()


class Antialiased(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.act = SnakeBeta(channels)
        self.upsample = Filtered()
        self.downsample = Lowpassed()

    def forward(self, x):
        c = x.shape[1]
        x = F.pad(x, (5, 5), mode="replicate")
        x = 2 * F.conv_transpose1d(x, self.upsample.filter.expand(c, -1, -1), stride=2, groups=c)[..., 15:-15]
        x = F.pad(self.act(x), (5, 6), mode="replicate")
        return F.conv1d(x, self.downsample.lowpass.filter.expand(c, -1, -1), stride=2, groups=c)


class SnakeBlock(nn.Module):
    def __init__(self, channels, k, dilations, two):
        super().__init__()
        assert two
        self.convs1 = nn.ModuleList([same(channels, k, d) for d in dilations])
        self.convs2 = nn.ModuleList([same(channels, k, 1) for _ in dilations])
        self.activations = nn.ModuleList([Antialiased(channels) for _ in range(2 * len(dilations))])

    def forward(self, x):
        for i, (a, b) in enumerate(zip(self.convs1, self.convs2)):
            x = x + b(self.activations[2 * i + 1](a(self.activations[2 * i](x))))
        return x


class Generator(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.snake = "activation" in h
        self.kernels = len(h["resblock_kernel_sizes"])
        c = h["upsample_initial_channel"]
        self.conv_pre = weight_norm(nn.Conv1d(h["num_mels"], c, 7, padding=3))
        self.ups, self.resblocks = nn.ModuleList(), nn.ModuleList()
        for rate, k in zip(h["upsample_rates"], h["upsample_kernel_sizes"]):
            up = weight_norm(nn.ConvTranspose1d(c, c // 2, k, rate, padding=(k - rate) // 2))
            self.ups.append(nn.ModuleList([up]) if self.snake else up)
            c //= 2
            block = SnakeBlock if self.snake else LeakyBlock
            for kr, d in zip(h["resblock_kernel_sizes"], h["resblock_dilation_sizes"]):
                self.resblocks.append(block(c, kr, d, h["resblock"] == "1"))
        if self.snake:
            self.activation_post = Antialiased(c)
        self.conv_post = weight_norm(nn.Conv1d(c, 1, 7, padding=3))

    def forward(self, x):
        x = self.conv_pre(x)
        for i, up in enumerate(self.ups):
            x = up[0](x) if self.snake else up(F.leaky_relu(x, 0.1))
            x = sum(self.resblocks[i * self.kernels + j](x) for j in range(self.kernels)) / self.kernels
        x = self.activation_post(x) if self.snake else F.leaky_relu(x)
        return torch.tanh(self.conv_post(x))


# ---- discriminators ---------------------------------------------------------------------------------------------------
class Stack(nn.Module):
    def __init__(self, convs, last, norm=weight_norm):
        super().__init__()
        self.convs = nn.ModuleList([norm(c) for c in convs])
        self.conv_post = norm(last)

    def maps(self, x):
        maps = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            maps.append(x)
        return maps + [self.conv_post(x)]


class Period(Stack):
    def __init__(self, period, mult):
        c = [1] + [int(n * mult) for n in (32, 128, 512, 1024, 1024)]
        convs = [nn.Conv2d(c[i], c[i + 1], (5, 1), (3 if i < 4 else 1, 1), padding=(2, 0)) for i in range(5)]
        super().__init__(convs, nn.Conv2d(c[5], 1, (3, 1), 1, padding=(1, 0)))
        self.period = period

    def forward(self, x):
        rest = x.shape[2] % self.period
        if rest:
            x = F.pad(x, (0, self.period - rest), "reflect")
        return self.maps(x.view(x.shape[0], 1, -1, self.period))


class Scale(Stack):
    def __init__(self, mult, norm):
        c = [1] + [int(n * mult) for n in (128, 128, 256, 512, 1024, 1024, 1024)]
        rows = [(15, 1, 1), (41, 2, 4), (41, 2, 16), (41, 4, 16), (41, 4, 16), (41, 1, 16), (5, 1, 1)]
        convs = [nn.Conv1d(c[i], c[i + 1], k, s, groups=g, padding=k // 2) for i, (k, s, g) in enumerate(rows)]
        super().__init__(convs, nn.Conv1d(c[7], 1, 3, 1, padding=1), norm)

    def forward(self, x):
        return self.maps(x)


class Resolution(Stack):
    def __init__(self, resolution, mult):
        c = int(32 * mult)
        convs = [nn.Conv2d(1, c, (3, 9), padding=(1, 4))]
        convs += [nn.Conv2d(c, c, (3, 9), stride=(1, 2), padding=(1, 4)) for _ in range(3)]
        convs += [nn.Conv2d(c, c, (3, 3), padding=(1, 1))]
        super().__init__(convs, nn.Conv2d(c, 1, (3, 3), padding=(1, 1)))
        self.resolution = resolution

    def forward(self, x):
        n_fft, hop, win = self.resolution
        x = F.pad(x, ((n_fft - hop) // 2,) * 2, mode="reflect").squeeze(1)
        x = torch.view_as_real(torch.stft(x, n_fft, hop, win, window=torch.ones(win), center=False, return_complex=True))
        return self.maps(torch.norm(x, p=2, dim=-1).unsqueeze(1))


class Several(nn.Module):
    def __init__(self, parts, pools=False):
        super().__init__()
        self.discriminators = nn.ModuleList(parts)
        self.pools = pools

    def forward(self, y, fake):
        real_maps, fake_maps = [], []
        for i, d in enumerate(self.discriminators):
            if self.pools and i > 0:
                y, fake = F.avg_pool1d(y, 4, 2, padding=2), F.avg_pool1d(fake, 4, 2, padding=2)
            real_maps.append(d(y))
            fake_maps.append(d(fake))
        return real_maps, fake_maps


def make_discriminators(h):
    mult = h.get("discriminator_channel_mult", 1)
    mpd = Several([Period(p, mult) for p in h.get("mpd_reshapes", [2, 3, 5, 7, 11])])
    if "activation" in h:
        return {"mpd": mpd, "mrd": Several([Resolution(r, mult) for r in h["resolutions"]])}
    return {"mpd": mpd, "msd": Several([Scale(mult, spectral_norm), Scale(mult, weight_norm), Scale(mult, weight_norm)], True)}


# ---- mel --------------------------------------------------------------------------------------------------------------
def mel_filters(rate, n_fft, n_mels, f_min, f_max) -> np.ndarray:
    """Slaney's scale and norm: linear below 1 kHz, logarithmic above."""
    def to_hz(m):
        return np.where(m < 15, m * 200 / 3, 1000 * np.exp((m - 15) * math.log(6.4) / 27))

    def to_mel(f):
        return f * 3 / 200 if f < 1000 else 15 + math.log(f / 1000) * 27 / math.log(6.4)

    edges = to_hz(np.linspace(to_mel(f_min), to_mel(f_max), n_mels + 2))
    bins = np.linspace(0, rate / 2, n_fft // 2 + 1)
    ramps = edges[:, None] - bins[None, :]
    width = np.diff(edges)
    rows = [np.maximum(0, np.minimum(-ramps[i] / width[i], ramps[i + 2] / width[i + 1])) for i in range(n_mels)]
    filters = np.array(rows).astype(np.float32)
    filters *= (2 / (edges[2:] - edges[:-2]))[:, None]
    return filters.astype(np.float32)


class Mel:
    def __init__(self, h, f_max):
        self.h = h
        filters = mel_filters(h["sampling_rate"], h["n_fft"], h["num_mels"], h["fmin"], f_max or h["sampling_rate"] / 2)
        self.filters = torch.from_numpy(filters).double()

    def __call__(self, y):
        n_fft, hop, win = self.h["n_fft"], self.h["hop_size"], self.h["win_size"]
        y = F.pad(y, ((n_fft - hop) // 2,) * 2, mode="reflect").squeeze(1)
        s = torch.stft(y, n_fft, hop, win, window=torch.hann_window(win), center=False, return_complex=True)
        s = torch.sqrt(torch.view_as_real(s).pow(2).sum(-1) + 1e-9)
        return torch.log(torch.clamp(self.filters @ s, min=1e-5))


# ---- the step ---------------------------------------------------------------------------------------------------------
def clip(module, most):
    return torch.nn.utils.clip_grad_norm_(module.parameters(), most).item()


def run(h, rows, steps):
    generator, discriminators = Generator(h), make_discriminators(h)
    fill("generator.", generator)
    for name, d in discriminators.items():
        fill(name + ".", d)
    betas = [h["adam_b1"], h["adam_b2"]]
    optim_g = torch.optim.AdamW(generator.parameters(), h["learning_rate"], betas=betas)
    optim_d = torch.optim.AdamW([p for d in discriminators.values() for p in d.parameters()], h["learning_rate"], betas=betas)
    mel_in, mel_loss = Mel(h, h["fmax"]), Mel(h, h["fmax_for_loss"])
    most = h.get("clip_grad_norm", 1000.0) if "activation" in h else math.inf
    losses, norms = [], []
    for step in range(steps):
        y = sound(step, rows, h["segment_size"])
        fake = generator(mel_in(y))
        optim_d.zero_grad()
        loss_d = 0
        for d in discriminators.values():
            for real_maps, fake_maps in zip(*d(y, fake.detach())):
                loss_d = loss_d + ((1 - real_maps[-1]) ** 2).mean() + (fake_maps[-1] ** 2).mean()
        loss_d.backward()
        norms_d = [clip(d, most) for d in discriminators.values()]
        optim_d.step()
        optim_g.zero_grad()
        adversarial, features = 0, 0
        for d in discriminators.values():
            for real_maps, fake_maps in zip(*d(y, fake)):
                adversarial = adversarial + ((1 - fake_maps[-1]) ** 2).mean()
                features = features + 2 * sum((a - b).abs().mean() for a, b in zip(real_maps, fake_maps))
        loss_mel = 45 * F.l1_loss(mel_loss(y), mel_loss(fake))
        (adversarial + features + loss_mel).backward()
        norms.append([clip(generator, most)] + norms_d)
        optim_g.step()
        if "activation" in h:  # BigVGAN's rate decays by steps, HiFi-GAN's by epochs
            for group in optim_g.param_groups + optim_d.param_groups:
                group["lr"] = h["learning_rate"] * h["lr_decay"] ** (step + 1)
        losses.append([loss_d.item(), adversarial.item(), features.item(), loss_mel.item()])
        print(step, losses[-1], norms[-1], flush=True)
    return np.array(losses), np.array(norms)


HIFIGAN = {
    "resblock": "1", "batch_size": 16, "learning_rate": 0.0002, "adam_b1": 0.8, "adam_b2": 0.99, "lr_decay": 0.999, "seed": 1234,
    "upsample_rates": [8, 8, 2, 2], "upsample_kernel_sizes": [16, 16, 4, 4], "upsample_initial_channel": 512,
    "resblock_kernel_sizes": [3, 7, 11], "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]], "segment_size": 2048,
    "num_mels": 80, "n_fft": 1024, "hop_size": 256, "win_size": 1024, "sampling_rate": 22050, "fmin": 0, "fmax": 8000,
    "fmax_for_loss": None,
}
BIGVGAN = {
    **HIFIGAN, "batch_size": 32, "learning_rate": 0.0001, "lr_decay": 0.9999996, "activation": "snakebeta", "snake_logscale": True,
    "resolutions": [[1024, 120, 600], [2048, 240, 1200], [512, 50, 240]], "mpd_reshapes": [2, 3, 5, 7, 11],
    "use_spectral_norm": False, "discriminator_channel_mult": 1, "num_mels": 100, "sampling_rate": 24000, "fmax": 12000,
}
# name: (configuration, rows of a batch)
CASES = {
    "hifigan_v1": (HIFIGAN, 1),
    "hifigan_small": ({**HIFIGAN, "upsample_initial_channel": 32, "discriminator_channel_mult": 0.125}, 2),
    "bigvgan_small": ({**BIGVGAN, "upsample_initial_channel": 32, "discriminator_channel_mult": 0.125, "clip_grad_norm": 100}, 2),
}


def save(path: Path, tensors: dict, metadata: dict) -> None:
    header, data = {"__metadata__": metadata}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": "F64", "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.astype("<f8").tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main() -> None:
    torch.set_default_dtype(torch.float64)
    for name in sys.argv[2:]:
        h, rows = CASES[name]
        losses, norms = run(h, rows, steps=10)
        about = {"config": json.dumps(h), "rows": str(rows), "note": NOTE, "made_by": f"PyTorch {torch.__version__}, float64"}
        tensors = {"losses": losses, "norms": norms}
        if "activation" in h:
            tensors["filter"] = low_pass().numpy()
        save(Path(sys.argv[1]) / f"gan_{name}.safetensors", tensors, about)


if __name__ == "__main__":
    main()
