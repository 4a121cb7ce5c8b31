"""The convolutions as functions of tensors, with the arguments of torch.nn.functional."""

import torch

from polyphase import _core

from . import fused, gradients, kernels
from polyphase._layer import Layer, both_ends, single
from .precision import check as check_precision
from .precision import current_precision

_get_autocast_dtype = getattr(torch, "get_autocast_dtype", None)
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *, precision=None,
                     activation="none", slope=0.01, alpha=None, beta=None, residual=None, scale=1.0):
    """residual + scale*activation(ConvTranspose1d(input) + bias), as torch.nn.functional.conv_transpose1d and what follows it.

    input (N, C_in, L_in) or (C_in, L_in), weight (C_in, C_out/groups, K), bias (C_out) or None -> (N, C_out, L_out) or (C_out, L_out),
    L_out = (L_in - 1)*stride - P_l - P_r + dilation*(K - 1) + output_padding + 1. `padding` is one number, or (P_l, P_r).
    float32, float64, float16 and bfloat16 on the CPU or a GPU, one dtype for all; autocast casts as for torch's own. Differentiable to any
    order in all tensors, deterministic, contiguous.

    precision: "ieee", "fp32" or "tf32", for float32; None: the `precision` context's.
    activation: "none", "relu", "leaky_relu" (`slope`), "tanh", or "snake": y + sin(alpha*y)^2/beta with alpha (C_out), beta (C_out) or
    None for alpha. residual: of the output's shape. They take no pass over memory of their own where the kernel can fuse them.

    Raises ShapeError (a ValueError), DTypeError (a TypeError), DeviceError, Error.
    """
    layer = make_layer(True, stride, padding, output_padding, dilation, groups, precision, None)
    if activation == "none" and residual is None:
        return _plain(layer, input, weight, bias, alpha, beta, scale)
    return _activated(layer, kernels.Epilogue(activation, slope, scale), input, weight, bias, alpha, beta, residual)


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, precision=None, activation="none", slope=0.01,
           alpha=None, beta=None, residual=None, scale=1.0):
    """residual + scale*activation(Conv1d(input) + bias), as torch.nn.functional.conv1d and what follows it.

    input (N, C_in, L_in) or (C_in, L_in), weight (C_out, C_in/groups, K), bias (C_out) or None -> (N, C_out, L_out) or (C_out, L_out),
    L_out = (L_in + P_l + P_r - dilation*(K - 1) - 1)/stride + 1 rounded down. `padding` is one number, (P_l, P_r), "valid" or, with
    stride 1, "same". Otherwise as conv_transpose1d.
    """
    layer = make_layer(False, stride, padding, 0, dilation, groups, precision, weight.shape[-1])
    if activation == "none" and residual is None:
        return _plain(layer, input, weight, bias, alpha, beta, scale)
    return _activated(layer, kernels.Epilogue(activation, slope, scale), input, weight, bias, alpha, beta, residual)


def make_layer(transposed, stride, padding, output_padding, dilation, groups, precision, kernel_size):
    """A Layer from the arguments of conv_transpose1d or conv1d; kernel_size counts for conv1d's padding="same"."""
    name = "conv_transpose1d" if transposed else "conv1d"
    stride, dilation = single(name, "stride", stride), single(name, "dilation", dilation)
    ends = both_ends(name, padding, None, None, None) if transposed else both_ends(name, padding, kernel_size, stride, dilation)
    return Layer(transposed, stride, ends, single(name, "output_padding", output_padding), dilation, groups, _precision(precision))


def _precision(precision):
    return current_precision() if precision is None else check_precision(precision)


def convolve(layer, x, weight, bias=None):
    """The convolution of `layer`, a _layer.Layer, on x (N, C_in, L_in) or (C_in, L_in)."""
    dtype = autocast_dtype(x)
    if dtype is not None:
        with torch.autocast(x.device.type, enabled=False):
            return convolve(layer, gradients.lowered(x, dtype), gradients.lowered(weight, dtype),
                            None if bias is None else gradients.lowered(bias, dtype))
    if x.dim() == 2:
        return gradients.convolve(layer, x.unsqueeze(0), weight, bias).squeeze(0)
    return gradients.convolve(layer, x, weight, bias)


def _plain(layer, x, weight, bias, alpha, beta, scale):
    if alpha is not None or beta is not None or scale != 1:
        _reject_epilogue(layer, alpha, beta, scale)
    return convolve(layer, x, weight, bias)


def _reject_epilogue(layer, alpha, beta, scale):
    raise _core.Error(f"{layer.name}: expected alpha and beta only with activation='snake', and a scale only with a residual, got "
                      f"alpha {_shape(alpha)}, beta {_shape(beta)} and scale={scale}")


def _activated(layer, epilogue, x, weight, bias, alpha, beta, residual):
    tensors = [x, weight, bias, alpha, beta, residual]
    dtype = autocast_dtype(x)
    if dtype is not None:
        tensors = [None if tensor is None else gradients.lowered(tensor, dtype) for tensor in tensors]
        with torch.autocast(x.device.type, enabled=False):
            return _activated(layer, epilogue, *tensors)
    _check_epilogue(layer, epilogue, *tensors)
    if x.dim() == 2:
        residual = None if residual is None else residual.unsqueeze(0)
        return fused.activated(layer, epilogue, x.unsqueeze(0), weight, bias, alpha, beta, residual).squeeze(0)
    return fused.activated(layer, epilogue, *tensors)


def _check_epilogue(layer, epilogue, x, weight, bias, alpha, beta, residual):
    activation = epilogue.activation
    if activation not in fused.ACTIVATIONS:
        raise _core.Error(f"{layer.name}: expected an activation of {', '.join(fused.ACTIVATIONS)}, got {activation!r}")
    if (activation == "snake") != (alpha is not None) or (beta is not None and alpha is None) or (residual is None and epilogue.scale != 1):
        _reject_epilogue(layer, alpha, beta, epilogue.scale)
    channels = layer.out_channels(weight.shape)
    for what, tensor in (("alpha", alpha), ("beta", beta)):
        if tensor is not None and tensor.shape != (channels,):
            raise _core.ShapeError(f"{layer.name}: expected {what} (C_out={channels}), got {tuple(tensor.shape)}")
    if residual is None:
        return
    batched = x if x.dim() == 3 else x.unsqueeze(0)
    output = layer.output_shape(batched.shape, weight.shape, None if bias is None else bias.shape)
    output = output[3 - x.dim():]
    if residual.shape != output:
        raise _core.ShapeError(f"{layer.name}: expected a residual of the output's shape {tuple(output)}, got {tuple(residual.shape)}")


def _shape(tensor):
    return None if tensor is None else tuple(tensor.shape)


def autocast_dtype(x):
    """The dtype that autocast asks for on x's device; None without autocast, or where torch.ops.polyphase casts by itself."""
    if _get_autocast_dtype is not None:
        if not _any_autocast() or x.is_meta or not torch.is_autocast_enabled(x.device.type) or gradients.needs_operator(x):
            return None
        return _get_autocast_dtype(x.device.type)
    if x.is_cuda:  # before torch 2.4
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
