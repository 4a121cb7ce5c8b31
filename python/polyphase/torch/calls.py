"""Calls of the operators in torch.ops.polyphase."""

import torch

ops = torch.ops.polyphase


def convolve(layer, x, weight, bias=None):
    if layer.transposed:
        return ops.conv_transpose1d(x, weight, bias, layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation,
                                    layer.precision)
    return ops.conv1d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups, layer.precision)


def input_grad(layer, grad, weight, length):
    return ops.conv_input_grad(grad, weight, length, *layer)


def weight_grad(layer, x, grad, kernel_size, with_bias):
    return ops.conv_weight_grad(x, grad, kernel_size, with_bias, *layer)


def activated(layer, epilogue, x, weight, bias, alpha, beta, residual, keep):
    return ops.conv_activated(x, weight, bias, alpha, beta, residual, *epilogue, keep, *layer)
