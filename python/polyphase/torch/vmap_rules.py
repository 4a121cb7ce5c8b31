"""The rules of torch's vmap, by polyphase._batching."""

import torch

from polyphase import _batching


def _prepared(dims, tensors):
    """Which tensors are mapped, and the tensors with the mapped dimension in front."""
    return [dim is not None for dim in dims], [t if dim is None else t.movedim(dim, 0) for dim, t in zip(dims, tensors)]


def convolve(call, size, dims, layer, *tensors):
    mapped, tensors = _prepared(dims, tensors)
    return _batching.convolve(call, torch.broadcast_to, size, mapped, layer, *tensors), 0


def input_grad(call, size, dims, layer, grad, weight, length):
    mapped, tensors = _prepared(dims, (grad, weight))
    return _batching.input_grad(call, torch.broadcast_to, size, mapped, layer, *tensors, length), 0


def weight_grad(call, size, dims, layer, x, grad, kernel_size, with_bias):
    mapped, tensors = _prepared(dims, (x, grad))
    return _batching.weight_grad(call, torch.broadcast_to, size, mapped, layer, *tensors, kernel_size, with_bias), (0, 0)
