"""BigVGAN's anti-aliased SnakeBeta in one pass over memory, forward and backward."""

import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

from polyphase import _core

from . import calls, fused, gradients, kernels
from .functional import autocast_dtype

TAPS = _core._ANTIALIAS_TAPS
_NAME = "antialias_snake"


def antialias_snake(input, alpha, beta, up, down):
    """SnakeBeta at twice the sampling rate between two low-pass filters (BigVGAN, arXiv 2206.04658): input (N, C, L) or (C, L) -> the same shape.

    alpha and beta (C): y + sin(alpha*y)^2/beta, without the exponentials of BigVGAN's log-scale parameters. up and down: the filters, (12) or
    (1, 1, 12), as BigVGAN's files have them; they have no gradients. float32, float64, float16 and bfloat16, one dtype for all; autocast
    casts. 16-bit types are computed in f32. Gradients of gradients are computed in steps.

    Raises ShapeError, DTypeError, DeviceError, and Error for filters that require gradients.
    """
    tensors = (input, alpha, beta, up, down)
    dtype = autocast_dtype(input)
    if dtype is not None:
        with torch.autocast(input.device.type, enabled=False):
            return antialias_snake(*(gradients.lowered(tensor, dtype) for tensor in tensors))
    check(*tensors)
    up, down = up.reshape(TAPS), down.reshape(TAPS)
    if input.dim() == 2:
        return _apply(input.unsqueeze(0), alpha, beta, up, down).squeeze(0)
    return _apply(input, alpha, beta, up, down)


def check(x, alpha, beta, up, down, is_fake=False):
    kernels.require_alike(_NAME, (x, alpha, beta, up, down), is_fake)
    if x.dim() not in (2, 3) or x.shape[-1] < 1:
        raise _core.ShapeError(f"{_NAME}: expected input (N, C, L) or (C, L) with L >= 1, got {tuple(x.shape)}")
    for what, tensor in (("alpha", alpha), ("beta", beta)):
        if tensor.shape != (x.shape[-2],):
            raise _core.ShapeError(f"{_NAME}: expected {what} (C={x.shape[-2]}), got {tuple(tensor.shape)}")
    for what, tensor in (("up", up), ("down", down)):
        if tuple(tensor.shape) not in ((TAPS,), (1, 1, TAPS)):
            raise _core.ShapeError(f"{_NAME}: expected the filter {what} ({TAPS}) or (1, 1, {TAPS}), got {tuple(tensor.shape)}")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise _core.Error(f"{_NAME}: expected filters without gradients, got {what} with requires_grad=True")


def _apply(*tensors):
    if forward_ad._current_level >= 0 or gradients._func_is_active():
        return steps(*tensors)
    if gradients.needs_operator(*tensors):
        return calls.ops.antialias_snake(*tensors)
    if gradients.needs_function(*tensors):
        return gradients.apply(AntialiasSnake, *tensors)
    return forward(*tensors)


def steps(x, alpha, beta, up, down):
    """The same by torch's functions."""
    channels, half = x.shape[1], TAPS // 2 - 1
    weight = (2 * up).expand(channels, 1, TAPS)
    y = F.conv_transpose1d(F.pad(x, (half, half), "replicate"), weight, stride=2, padding=3 * half, groups=channels)
    y = fused.snake(y, alpha, beta)
    return F.conv1d(F.pad(y, (half, half + 1), "replicate"), down.expand(channels, 1, TAPS), stride=2, groups=channels)


def _place(x):
    device = x.get_device()
    return device, kernels._raw_stream(device) if device >= 0 else 0


def forward(x, alpha, beta, up, down):
    tensors = [kernels.dense(tensor) for tensor in (x, alpha, beta, up, down)]
    y = torch.empty_like(tensors[0], memory_format=torch.contiguous_format)
    _core.antialias_snake_forward(tuple(x.shape), kernels.DTYPES[x.dtype], tuple(tensor.data_ptr() for tensor in tensors), y.data_ptr(), *_place(x))
    return y


def backward(grad, x, alpha, beta, up, down):
    """The gradients of x, alpha and beta."""
    grad, *tensors = [kernels.dense(tensor) for tensor in (grad, x, alpha, beta, up, down)]
    made = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors[:3]]
    _core.antialias_snake_backward(tuple(x.shape), kernels.DTYPES[x.dtype], tuple(tensor.data_ptr() for tensor in tensors), grad.data_ptr(),
                                   *(tensor.data_ptr() for tensor in made), *_place(x))
    return tuple(made)


def saved_backward(ctx, grad):
    tensors = ctx.saved_tensors
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (grad, *tensors[:3])):  # somebody differentiates the gradients
        with torch.enable_grad():
            inputs = tensors[:3]
            wanted = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in inputs]
            return torch.autograd.grad(steps(*wanted, *tensors[3:]), wanted, grad, create_graph=True)
    if gradients.needs_operator(grad, *tensors):
        return calls.ops.antialias_snake_backward(grad, *tensors)
    return backward(grad, *tensors)


@gradients.function
class AntialiasSnake(torch.autograd.Function):
    @staticmethod
    def forward(x, alpha, beta, up, down):
        return forward(x, alpha, beta, up, down)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return (*saved_backward(ctx, grad), None, None)
