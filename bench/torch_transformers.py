"""Mimi and Qwen3-TTS in plain PyTorch, like the networks of torch_networks.py."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from torch_networks import Branch, Causal, ConvNext, SnakeBeta, Under


class Codebook(nn.Module):
    def __init__(self, size, dim):
        super().__init__()
        self.register_buffer("cluster_usage", torch.ones(size))
        self.register_buffer("embedding_sum", torch.randn(size, dim))
        self.register_buffer("embedding", torch.empty(0), persistent=False)  # computed by the original in its first use

    def forward(self, codes):
        if self.embedding.shape != self.embedding_sum.shape or self.embedding.dtype != self.embedding_sum.dtype:
            self.embedding = self.embedding_sum / self.cluster_usage.clamp(min=1e-5)[:, None]
        return F.embedding(codes, self.embedding)


class SplitRvq(nn.Module):
    def __init__(self, count, size, dim, out):
        super().__init__()
        for name, layers in (("rvq_first", 1), ("rvq_rest", count - 1)):
            part = nn.Module()
            part.vq = Under("layers", nn.ModuleList([Under("_codebook", Codebook(size, dim)) for _ in range(layers)]))
            part.output_proj = nn.Conv1d(dim, out, 1, bias=False)
            self.add_module(name, part)

    @staticmethod
    def part(part, codes):
        total = sum(part.vq.layers[q](codes[:, q]) for q in range(codes.shape[1]))
        return part.output_proj(total.transpose(1, 2))

    def forward(self, codes):
        return self.part(self.rvq_first, codes[:, :1]) + self.part(self.rvq_rest, codes[:, 1:])


def place(length, size, base, interleaved, x):
    """The rotation of heads of `size`: cos and sin in the order of the elements, and the mask's positions."""
    turn = base ** (-torch.arange(0, size, 2, device=x.device, dtype=torch.float64) / size)
    angle = torch.arange(length, device=x.device, dtype=torch.float64)[:, None] * turn
    angle = angle.repeat_interleave(2, dim=-1) if interleaved else torch.cat([angle, angle], dim=-1)
    return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def rotated(x, cos, sin, interleaved):
    if interleaved:
        other = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    else:
        half = x.shape[-1] // 2
        other = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + other * sin


def window_mask(length, window, device):
    position = torch.arange(length, device=device)
    behind = position[:, None] - position[None, :]
    return (behind >= 0) & (behind < window)


def attend(q, k, v, mask):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v


class Scale(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), 0.01))

    def forward(self, x):
        return self.scale * x


class MimiLayer(nn.Module):
    def __init__(self, t):
        super().__init__()
        d, self.heads = t["d_model"], t["num_heads"]
        self.self_attn = nn.Module()
        self.self_attn.in_projs = nn.ModuleList([nn.Linear(d, 3 * d, bias=False)])
        self.self_attn.out_projs = nn.ModuleList([nn.Linear(d, d, bias=False)])
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.linear1, self.linear2 = nn.Linear(d, t["dim_feedforward"], bias=False), nn.Linear(t["dim_feedforward"], d, bias=False)
        self.layer_scale_1, self.layer_scale_2 = Scale(d), Scale(d)

    def forward(self, x, turn, mask):
        n, length, d = x.shape
        heads = self.self_attn.in_projs[0](self.norm1(x)).reshape(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = attend(rotated(heads[0], *turn, True), rotated(heads[1], *turn, True), heads[2], mask)
        x = x + self.layer_scale_1(self.self_attn.out_projs[0](y.transpose(1, 2).reshape(n, length, d)))
        return x + self.layer_scale_2(self.linear2(F.gelu(self.linear1(self.norm2(x)))))


class Mimi(nn.Module):
    def __init__(self, h):
        super().__init__()
        s, q, self.t = h["seanet"], h["quantizer"], h["transformer"]
        self.codebook_size, d, channels = q["bins"], s["dimension"], s["n_filters"] * 2 ** len(s["ratios"])
        steps = round(h["sample_rate"] / math.prod(s["ratios"]) / h["frame_rate"])
        self.quantizer = SplitRvq(q["n_q"], q["bins"], q["dimension"], d)
        self.upsample = Under("convtr", Under("convtr", Causal(
            "convtr", nn.ConvTranspose1d(d, d, 2 * steps, steps, groups=d, bias=False))))
        self.decoder_transformer = nn.Module()
        self.decoder_transformer.transformer = nn.Module()
        self.decoder_transformer.transformer.layers = nn.ModuleList([MimiLayer(self.t) for _ in range(self.t["num_layers"])])
        conv = lambda i, o, k: Under("conv", Causal("conv", nn.Conv1d(i, o, k)))
        layers = [conv(d, channels, s["kernel_size"])]
        for ratio in s["ratios"]:
            layers += [nn.ELU(), Under("convtr", Causal("convtr", nn.ConvTranspose1d(channels, channels // 2, 2 * ratio, ratio)))]
            channels //= 2
            hidden = channels // s["compress"]
            layers.append(Branch({"block": nn.Sequential(
                nn.ELU(), conv(channels, hidden, s["residual_kernel_size"]), nn.ELU(), conv(hidden, channels, 1))}))
        self.decoder = Under("model", nn.Sequential(*layers, nn.ELU(), conv(channels, s["channels"], s["last_kernel_size"])))

    def forward(self, codes):
        x = self.upsample(self.quantizer(codes)).transpose(1, 2)
        turn = place(x.shape[1], x.shape[2] // self.t["num_heads"], self.t["max_period"], True, x)
        mask = window_mask(x.shape[1], self.t["context"], x.device)
        for layer in self.decoder_transformer.transformer.layers:
            x = layer(x, turn, mask)
        return self.decoder(x.transpose(1, 2))


class RmsNorm(nn.Module):
    def __init__(self, channels, epsilon):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(channels)), epsilon

    def forward(self, x):
        wide = x if x.dtype == torch.float64 else x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)).to(x.dtype)


class QwenLayer(nn.Module):
    def __init__(self, h):
        super().__init__()
        d, self.heads, self.shared = h["hidden_size"], h["num_attention_heads"], h["num_attention_heads"] // h["num_key_value_heads"]
        size = h.get("head_dim", d // self.heads)
        project = lambda i, o: nn.Linear(i, o, bias=h["attention_bias"])
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        self.self_attn.q_proj, self.self_attn.o_proj = project(d, self.heads * size), project(self.heads * size, d)
        self.self_attn.k_proj = project(d, h["num_key_value_heads"] * size)
        self.self_attn.v_proj = project(d, h["num_key_value_heads"] * size)
        for name, (i, o) in {"gate_proj": (d, h["intermediate_size"]), "up_proj": (d, h["intermediate_size"]),
                             "down_proj": (h["intermediate_size"], d)}.items():
            self.mlp.add_module(name, nn.Linear(i, o, bias=False))
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(d, h["rms_norm_eps"]), RmsNorm(d, h["rms_norm_eps"])
        self.self_attn_layer_scale, self.mlp_layer_scale = Scale(d), Scale(d)

    def forward(self, x, turn, mask):
        n, length, _ = x.shape
        a, m, y = self.self_attn, self.mlp, self.input_layernorm(x)
        q, k, v = (p(y).reshape(n, length, -1, turn[0].shape[-1]).transpose(1, 2) for p in (a.q_proj, a.k_proj, a.v_proj))
        k, v = (part.repeat_interleave(self.shared, dim=1) if self.shared > 1 else part for part in (k, v))
        y = attend(rotated(q, *turn, False), rotated(k, *turn, False), v, mask)
        x = x + self.self_attn_layer_scale(a.o_proj(y.transpose(1, 2).reshape(n, length, -1)))
        y = self.post_attention_layernorm(x)
        return x + self.mlp_layer_scale(m.down_proj(F.silu(m.gate_proj(y)) * m.up_proj(y)))


class Qwen3(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.h, self.codebook_size, latent, d, channels = h, h["codebook_size"], h["latent_dim"], h["hidden_size"], h["decoder_dim"]
        conv = lambda i, o, k, dilation=1: Causal("conv", nn.Conv1d(i, o, k, dilation=dilation))
        up = lambda i, o, k, stride: Causal("conv", nn.ConvTranspose1d(i, o, k, stride))
        unit = lambda c, dilation: Branch(
            {"act1": SnakeBeta(c), "conv1": conv(c, c, 7, dilation), "act2": SnakeBeta(c), "conv2": conv(c, c, 1)})
        self.quantizer = SplitRvq(h["num_quantizers"], h["codebook_size"], h["codebook_dim"] // 2, h["codebook_dim"])
        self.pre_conv = conv(h["codebook_dim"], latent, 3)
        t = self.pre_transformer = nn.Module()
        t.input_proj, t.output_proj, t.norm = nn.Linear(latent, d), nn.Linear(d, latent), RmsNorm(d, h["rms_norm_eps"])
        t.layers = nn.ModuleList([QwenLayer(h) for _ in range(h["num_hidden_layers"])])
        self.upsample = nn.Sequential(*(nn.Sequential(up(latent, latent, r, r), ConvNext(latent, 4 * latent, True))
                                        for r in h["upsampling_ratios"]))
        layers = [conv(latent, channels, 7)]
        for rate in h["upsample_rates"]:
            layers.append(Under("block", nn.Sequential(SnakeBeta(channels), up(channels, channels // 2, 2 * rate, rate),
                                                       *(unit(channels // 2, dilation) for dilation in (1, 3, 9)))))
            channels //= 2
        self.decoder = nn.Sequential(*layers, SnakeBeta(channels), conv(channels, 1, 7))

    def forward(self, codes):
        t, h = self.pre_transformer, self.h
        x = t.input_proj(self.pre_conv(self.quantizer(codes)).transpose(1, 2))
        turn = place(x.shape[1], h.get("head_dim", h["hidden_size"] // h["num_attention_heads"]), h["rope_theta"], False, x)
        mask = window_mask(x.shape[1], h["sliding_window"], x.device)
        for layer in t.layers:
            x = layer(x, turn, mask)
        return self.decoder(self.upsample(t.output_proj(t.norm(x)).transpose(1, 2))).clamp(-1, 1)
