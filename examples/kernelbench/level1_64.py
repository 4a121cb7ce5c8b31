"""KernelBench level 1, problem 64: ConvTranspose1d."""

import torch
from torch import nn

import polyphase.torch


class ModelNew(nn.Module):
    """The layer has torch's constructor and draws its parameters in torch's order: one seed gives the reference's weights."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0, output_padding: int = 0,
                 groups: int = 1, bias: bool = False):
        super().__init__()
        self.conv1d_transpose = polyphase.torch.ConvTranspose1d(in_channels, out_channels, kernel_size, stride=stride, padding=padding,
                                                                output_padding=output_padding, groups=groups, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (N, in_channels, L) -> (N, out_channels, L_out)"""
        return self.conv1d_transpose(x)
