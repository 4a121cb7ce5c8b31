"""Published networks in plain PyTorch, weight norm folded, for peers_torch_networks.py. Parameters have the names of the original code,
so that each network can be checked against its golden file. Sources: the headers in src/networks."""

import json
import math
import struct

import torch
from torch import nn
from torch.nn import functional as F

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}


def read_safetensors(path):
    """{name: tensor} and the metadata."""
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = torch.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def load(net, weights):
    """Loads a state dict in float64 and folds weight norm, with both spellings of its names. Ignores keys that the network lacks."""
    state = {name: tensor.double() for name, tensor in weights.items()}
    for g, v in ((".weight_g", ".weight_v"), (".parametrizations.weight.original0", ".parametrizations.weight.original1")):
        for name in [name for name in state if name.endswith(g)]:
            base = name[:-len(g)]
            direction = state.pop(base + v)
            state[base + ".weight"] = state.pop(name) * direction / direction.flatten(1).norm(dim=1).reshape(-1, 1, 1)
    missing = net.double().load_state_dict(state, strict=False).missing_keys
    if missing:
        raise SystemExit(f"{type(net).__name__}: the golden file lacks {', '.join(missing[:5])}")


class Under(nn.Module):
    """A module whose keys begin with `name`."""

    def __init__(self, name, module):
        super().__init__()
        self.name = name
        self.add_module(name, module)

    def forward(self, x):
        return getattr(self, self.name)(x)


def same(channels, kernel, dilation=1, groups=1):
    return nn.Conv1d(channels, channels, kernel, dilation=dilation, padding=(kernel - 1) * dilation // 2, groups=groups)


class Snake(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x):
        return x + torch.sin(self.alpha * x).square() / (self.alpha + 1e-9)


class SnakeBeta(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.zeros(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        alpha, beta = self.alpha.exp()[:, None], self.beta.exp()[:, None]
        return x + torch.sin(alpha * x).square() / (beta + 1e-9)


class Causal(nn.Module):
    """A causal convolution, or a transposed one cut at its end; its keys begin with `name`."""

    def __init__(self, name, conv, mode="constant"):
        super().__init__()
        self.name, self.mode, self.is_up = name, mode, isinstance(conv, nn.ConvTranspose1d)
        self.add_module(name, conv)
        (kernel,), (stride,), (dilation,) = conv.kernel_size, conv.stride, conv.dilation
        self.amount = kernel - stride if self.is_up else (kernel - 1) * dilation

    def forward(self, x):
        conv, amount = getattr(self, self.name), self.amount
        if self.is_up:
            y = conv(x)
            return y[..., :y.shape[-1] - amount]
        if amount == 0:
            return conv(x)
        if self.mode == "constant":
            return conv(F.pad(x, (amount, 0)))
        length = x.shape[-1]
        if length <= amount:  # EnCodec's guard for short inputs
            x = F.pad(x, (0, amount - length + 1))
        return conv(F.pad(x, (amount, 0), "reflect")[..., :length + amount])


class Branch(nn.Module):
    """x + the output of the modules, which have the given names; `shortcut` is applied to x if there is one."""

    def __init__(self, modules, shortcut=None):
        super().__init__()
        self.names = list(modules)
        for name, module in modules.items():
            self.add_module(name, module)
        self.shortcut = shortcut

    def forward(self, x):
        y = x
        for name in self.names:
            y = getattr(self, name)(y)
        return y + (x if self.shortcut is None else self.shortcut(x))


class HifiGan(nn.Module):
    def __init__(self, h):
        super().__init__()
        channels = h["upsample_initial_channel"]
        self.rates, self.two = len(h["upsample_rates"]), h["resblock"] == "1"
        self.conv_pre = nn.Conv1d(h["num_mels"], channels, 7, padding=3)
        self.ups, self.resblocks = nn.ModuleList(), nn.ModuleList()
        for rate, kernel in zip(h["upsample_rates"], h["upsample_kernel_sizes"]):
            self.ups.append(self.up(nn.ConvTranspose1d(channels, channels // 2, kernel, rate, (kernel - rate) // 2)))
            channels //= 2
            for size, dilations in zip(h["resblock_kernel_sizes"], h["resblock_dilation_sizes"]):
                self.resblocks.append(self.resblock(channels, size, dilations))
        self.conv_post = nn.Conv1d(channels, 1, 7, padding=3, bias=self.final_bias(h))
        self.per_stage = len(h["resblock_kernel_sizes"])

    def up(self, layer):
        return layer

    def final_bias(self, h):
        return True

    def resblock(self, channels, kernel, dilations):
        convs = nn.ModuleList([same(channels, kernel, d) for d in dilations])
        if not self.two:
            return nn.ModuleDict({"convs": convs})
        return nn.ModuleDict({"convs1": convs, "convs2": nn.ModuleList([same(channels, kernel) for _ in dilations])})

    def run(self, block, x):
        for i, conv in enumerate(block["convs1" if self.two else "convs"]):
            y = conv(F.leaky_relu(x, 0.1))
            x = x + (block["convs2"][i](F.leaky_relu(y, 0.1)) if self.two else y)
        return x

    def before_up(self, x):
        return F.leaky_relu(x, 0.1)

    def last(self, x):
        return torch.tanh(self.conv_post(F.leaky_relu(x)))

    def forward(self, x):
        x = self.conv_pre(x)
        for i, up in enumerate(self.ups):
            x = up(self.before_up(x))
            total = None
            for block in self.resblocks[i * self.per_stage:(i + 1) * self.per_stage]:
                total = self.run(block, x) if total is None else total + self.run(block, x)
            x = total / self.per_stage
        return self.last(x)


class Antialiased(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.act = SnakeBeta(channels)
        # Kaiser window of 12 taps, cutoff 0.25, half width 0.3.
        beta = 0.1102 * (2.285 * 5 * math.pi * 1.2 + 7.95 - 8.7)
        time = torch.arange(-6, 6) + 0.5
        taps = 0.5 * torch.kaiser_window(12, periodic=False, beta=beta) * torch.sinc(0.5 * time)
        taps = (taps / taps.sum()).reshape(1, 1, 12)
        self.upsample = nn.Module()
        self.upsample.register_buffer("filter", taps)
        self.downsample = nn.Module()
        self.downsample.lowpass = nn.Module()
        self.downsample.lowpass.register_buffer("filter", taps.clone())

    def forward(self, x):
        channels = x.shape[1]
        up = F.conv_transpose1d(F.pad(x, (5, 5), "replicate"), self.upsample.filter.expand(channels, -1, -1), stride=2, groups=channels)
        y = self.act(2 * up[..., 15:-15])
        down = self.downsample.lowpass.filter.expand(channels, -1, -1)
        return F.conv1d(F.pad(y, (5, 6), "replicate"), down, stride=2, groups=channels)


class BigVgan(HifiGan):
    def __init__(self, h):
        super().__init__(h)
        self.activation_post = Antialiased(self.conv_post.in_channels)
        self.tanh = h.get("use_tanh_at_final", True)

    def up(self, layer):
        return nn.ModuleList([layer])

    def final_bias(self, h):
        return h.get("use_bias_at_final", True)

    def resblock(self, channels, kernel, dilations):
        block = super().resblock(channels, kernel, dilations)
        count = len(dilations) * (2 if self.two else 1)
        block["activations"] = nn.ModuleList([Antialiased(channels) for _ in range(count)])
        return block

    def run(self, block, x):
        for i, conv in enumerate(block["convs1" if self.two else "convs"]):
            y = conv(block["activations"][2 * i if self.two else i](x))
            x = x + (block["convs2"][i](block["activations"][2 * i + 1](y)) if self.two else y)
        return x

    def last(self, x):
        y = self.conv_post(self.activation_post(x))
        return torch.tanh(y) if self.tanh else y.clamp(-1, 1)

    def forward(self, x):
        x = self.conv_pre(x)
        for i, (up,) in enumerate(self.ups):
            x = up(x)
            blocks = self.resblocks[i * self.per_stage:(i + 1) * self.per_stage]
            x = sum(self.run(block, x) for block in blocks) / self.per_stage
        return self.last(x)


def dac_unit(channels, dilation, groups=1):
    return Branch({"block": nn.Sequential(Snake(channels), same(channels, 7, dilation, groups), Snake(channels), nn.Conv1d(channels, channels, 1))})


class Dac(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.codebook_size, channels = h["codebook_size"], h["decoder_dim"]
        book = lambda: nn.ModuleDict({"codebook": nn.Embedding(h["codebook_size"], h["codebook_dim"]),
                                      "out_proj": nn.Conv1d(h["codebook_dim"], h["latent_dim"], 1)})
        self.quantizer = nn.Module()
        self.quantizer.quantizers = nn.ModuleList([book() for _ in range(h["n_codebooks"])])
        layers = [nn.Conv1d(h["latent_dim"], channels, 7, padding=3)]
        for rate in h["decoder_rates"]:
            up = nn.ConvTranspose1d(channels, channels // 2, 2 * rate, rate, math.ceil(rate / 2))
            channels //= 2
            layers.append(Under("block", nn.Sequential(Snake(2 * channels), up, *(dac_unit(channels, d) for d in (1, 3, 9)))))
        self.decoder = Under("model", nn.Sequential(*layers, Snake(channels), nn.Conv1d(channels, 1, 7, padding=3), nn.Tanh()))

    def forward(self, codes):
        books = self.quantizer.quantizers
        return self.decoder(sum(books[q]["out_proj"](books[q]["codebook"](codes[:, q]).transpose(1, 2)) for q in range(codes.shape[1])))


class Noise(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.linear, self.given = nn.Conv1d(channels, channels, 1, bias=False), None

    def forward(self, x):
        noise = torch.randn_like(x[:, :1]) if self.given is None else self.given
        return x + noise * self.linear(x)


class Snac(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.codebook_size, self.strides = h["codebook_size"], h["vq_strides"]
        latent, channels = h["encoder_dim"] * 2 ** len(h["encoder_rates"]), h["decoder_dim"]
        book = lambda: nn.ModuleDict({"codebook": nn.Embedding(h["codebook_size"], h["codebook_dim"]),
                                      "out_proj": nn.Conv1d(h["codebook_dim"], latent, 1)})
        self.quantizer = nn.Module()
        self.quantizer.quantizers = nn.ModuleList([book() for _ in self.strides])
        layers = [same(latent, 7, groups=latent), nn.Conv1d(latent, channels, 1)]
        for rate in h["decoder_rates"]:
            up = nn.ConvTranspose1d(channels, channels // 2, 2 * rate, rate, math.ceil(rate / 2), output_padding=rate % 2)
            channels //= 2
            units = (dac_unit(channels, d, channels) for d in (1, 3, 9))
            layers.append(Under("block", nn.Sequential(Snake(2 * channels), up, Noise(channels), *units)))
        self.decoder = Under("model", nn.Sequential(*layers, Snake(channels), nn.Conv1d(channels, 1, 7, padding=3), nn.Tanh()))

    def set_noise(self, rows):
        for block, noise in zip([m for m in self.modules() if isinstance(m, Noise)], rows):
            block.given = noise

    def forward(self, codes):
        parts = [book["out_proj"](book["codebook"](code).transpose(1, 2)).repeat_interleave(stride, dim=-1)
                 for book, code, stride in zip(self.quantizer.quantizers, codes, self.strides)]
        return self.decoder(sum(parts))


class Slstm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.lstm = nn.LSTM(channels, channels, 2)

    def forward(self, x):
        y = x.permute(2, 0, 1)
        return (self.lstm(y)[0] + y).permute(1, 2, 0)


class Encodec(nn.Module):
    def __init__(self, h):
        super().__init__()
        seanet, quantizer = h["seanet"], h["quantizer"]
        self.codebook_size, channels = quantizer["bins"], seanet["n_filters"] * 2 ** len(seanet["ratios"])
        self.books = nn.ModuleList([nn.Embedding(quantizer["bins"], quantizer["dimension"]) for _ in range(quantizer["n_q"])])
        conv = lambda i, o, k: Under("conv", Causal("conv", nn.Conv1d(i, o, k), "reflect"))
        layers = [conv(seanet["dimension"], channels, 7), Slstm(channels)]
        for ratio in seanet["ratios"]:
            layers += [nn.ELU(), Under("convtr", Causal("convtr", nn.ConvTranspose1d(channels, channels // 2, 2 * ratio, ratio)))]
            channels //= 2
            block = nn.Sequential(nn.ELU(), conv(channels, channels // 2, 3), nn.ELU(), conv(channels // 2, channels, 1))
            layers.append(Branch({"block": block}, conv(channels, channels, 1)))
        self.decoder = Under("model", nn.Sequential(*layers, nn.ELU(), conv(channels, h["channels"], 7)))

    @staticmethod
    def renamed(key):
        return key.replace("quantizer.vq.layers.", "books.").replace("._codebook.embed", ".weight") if key.endswith(".embed") else key

    def forward(self, codes):
        return self.decoder(sum(self.books[q](codes[:, q]) for q in range(codes.shape[1])).transpose(1, 2))


class Oobleck(nn.Module):
    def __init__(self, h):
        super().__init__()
        h = h["model"]["decoder"]["config"]
        widths = [h["channels"] * m for m in [1, *h["c_mults"]]]
        layers = [nn.Conv1d(h["latent_dim"], widths[-1], 7, padding=3)]
        for wide, narrow, stride in zip(widths[:0:-1], widths[-2::-1], h["strides"][::-1]):
            unit = lambda dilation, c=narrow: Branch(
                {"layers": nn.Sequential(SnakeBeta(c), same(c, 7, dilation), SnakeBeta(c), nn.Conv1d(c, c, 1))})
            up = nn.ConvTranspose1d(wide, narrow, 2 * stride, stride, math.ceil(stride / 2))
            layers.append(Under("layers", nn.Sequential(SnakeBeta(wide), up, unit(1), unit(3), unit(9))))
        layers += [SnakeBeta(widths[0]), nn.Conv1d(widths[0], h["out_channels"], 7, padding=3, bias=False)]
        self.decoder = Under("layers", nn.Sequential(*layers))

    def forward(self, x):
        return self.decoder(x)


class ConvNext(nn.Module):
    """`causal`: with the names of Qwen3-TTS."""

    def __init__(self, channels, hidden, causal=False):
        super().__init__()
        conv = nn.Conv1d(channels, channels, 7, padding=0 if causal else 3, groups=channels)
        self.dwconv = Causal("conv", conv) if causal else conv
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(channels, hidden), nn.Linear(hidden, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x):
        y = self.pwconv2(F.gelu(self.pwconv1(self.norm(self.dwconv(x).transpose(1, 2)))))
        return x + (self.gamma * y).transpose(1, 2)


class Vocos(nn.Module):
    def __init__(self, h):
        super().__init__()
        backbone, head = h["backbone"]["init_args"], h["head"]["init_args"]
        dim, self.n_fft, self.hop = backbone["dim"], head["n_fft"], head["hop_length"]
        self.backbone, self.head = nn.Module(), nn.Module()
        self.backbone.embed = nn.Conv1d(backbone["input_channels"], dim, 7, padding=3)
        self.backbone.norm = nn.LayerNorm(dim, eps=1e-6)
        self.backbone.convnext = nn.Sequential(*(ConvNext(dim, backbone["intermediate_dim"]) for _ in range(backbone["num_layers"])))
        self.backbone.final_layer_norm = nn.LayerNorm(dim, eps=1e-6)
        self.head.out = nn.Linear(dim, self.n_fft + 2)
        self.head.istft = nn.Module()
        self.head.istft.register_buffer("window", torch.hann_window(self.n_fft))

    def added(self, frames):
        """(N, n_fft, T) overlapped and added -> (N, samples)."""
        size = (1, (frames.shape[-1] - 1) * self.hop + self.n_fft)
        return F.fold(frames, size, (1, self.n_fft), stride=(1, self.hop))[:, 0, 0]

    def forward(self, x):
        body = self.backbone
        x = body.convnext(body.norm(body.embed(x).transpose(1, 2)).transpose(1, 2))
        x = self.head.out(body.final_layer_norm(x.transpose(1, 2))).transpose(1, 2)
        x = x if x.dtype == torch.float64 else x.float()
        magnitude, phase = x.chunk(2, dim=1)
        magnitude, window = magnitude.exp().clip(max=1e2), self.head.istft.window.to(x.dtype)
        frames = torch.fft.irfft(torch.complex(magnitude * phase.cos(), magnitude * phase.sin()), self.n_fft, dim=1) * window[:, None]
        envelope = self.added(window.square()[None, :, None].expand(1, -1, x.shape[-1]))
        cut = slice(self.n_fft // 2, -(self.n_fft // 2))
        return self.added(frames)[:, cut] / envelope[:, cut]


def renamed(net, weights):
    """The weights with the network's own names, if those differ from the original's."""
    rename = getattr(net, "renamed", lambda name: name)
    return {rename(name): tensor for name, tensor in weights.items()}
