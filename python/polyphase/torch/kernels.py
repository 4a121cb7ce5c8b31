"""Calls of polyphase._core on tensors: no gradients, no dispatch. Results and workspace come from torch's allocator, and all work goes to
torch's current stream."""

from typing import NamedTuple

import torch

from polyphase import _core

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}


class Epilogue(NamedTuple):
    """What follows the sums: residual + scale*activation(sums + bias)."""

    activation: str = "none"
    slope: float = 0.01  # of leaky_relu
    scale: float = 1.0


class Plan(NamedTuple):
    """A layer, forward or backward, on tensors of given shapes, dtype and device."""

    problem: tuple
    input: tuple   # (N, C_in, L_in)
    weight: tuple
    output: tuple  # (N, C_out, L_out)
    dtype: str
    device: int    # -1: the CPU
    precision: str
    workspace: int  # in bytes
    is_empty: bool  # without samples

    def execution(self, like):
        """The workspace, which must live until the call returns, and the last arguments of a call."""
        if self.device < 0:
            return None, (0, 0, -1, 0, self.precision)
        size = self.workspace
        workspace = like.new_empty((size,), dtype=torch.uint8) if size else None
        return workspace, (workspace.data_ptr() if size else 0, size, self.device, _raw_stream(self.device), self.precision)


def _raw_stream(index):
    return torch._C._cuda_getCurrentRawStream(index)


_plans = {}  # by direction, layer and what the call's tensors are
_MOST_PLANS = 4096


def _facts(tensor):
    return tensor.shape, tensor.dtype, tensor.device


def _remember(key, plan):
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    _plans[key] = plan
    return plan


def _make_plan(directions, layer, like, x, weight, bias=None):
    """For calls of `directions`, "forward", "dgrad" or "wgrad". `like` has the dtype and the device."""
    output, problem, dtype, device = layer.output_shape(x, weight, bias), layer.problem(x, weight), DTYPES[like.dtype], like.get_device()
    workspace = max(_core.workspace_bytes(problem, dtype, direction, layer.precision, device) for direction in directions)
    return Plan(problem, tuple(x), tuple(weight), output, dtype, device, layer.precision, workspace, x[0] == 0)


def _plan_of_convolve(layer, x, weight, bias):
    key = ("forward", layer, *_facts(x), *_facts(weight), None if bias is None else _facts(bias))
    plan = _plans.get(key)
    if plan is not None:
        return plan
    require_alike(layer.name, (x, weight, bias))
    return _remember(key, _make_plan(("forward",), layer, x, x.shape, weight.shape, None if bias is None else bias.shape))


def _plan_of_backward(layer, grad, x, weight, length, kernel_size):
    """x is None without the weight's gradient, the weight without x's."""
    given = grad if x is None else x, grad if weight is None else weight
    key = ("backward", layer, *_facts(grad), *_facts(given[0]), *_facts(given[1]), length, kernel_size, x is None, weight is None)
    plan = _plans.get(key)
    if plan is not None:
        return plan
    require_alike(layer.name, (grad, *given))
    of_weight = layer.weight_shape(x.shape[1], grad.shape[1], kernel_size) if weight is None else weight.shape
    of_x = (grad.shape[0], layer.in_channels(of_weight), length) if x is None else x.shape
    directions = [name for name, needed in (("dgrad", weight is not None), ("wgrad", x is not None)) if needed]
    plan = _make_plan(directions, layer, grad, of_x, of_weight)
    _require_shape(layer, grad, plan.output)
    return _remember(key, plan)


def _require_shape(layer, grad, shape):
    if grad.shape != shape:
        raise _core.ShapeError(f"{layer.name}: expected the output's gradient {tuple(shape)}, got {tuple(grad.shape)}")


def require_alike(name, tensors, is_fake=False):
    """Raises DTypeError or DeviceError unless all tensors (or None) have one dtype and one device, which kernels take unless `is_fake`."""
    x = tensors[0]
    if x.dtype not in DTYPES:
        raise _core.DTypeError(f"{name}: expected float32, float64, float16 or bfloat16, got {x.dtype}")
    if not (x.is_cuda or x.device.type == "cpu" or is_fake):
        raise _core.DeviceError(f"{name}: expected a CPU or CUDA tensor, got one on {x.device}")
    if x.is_cuda and not _core._with_cuda and not is_fake:
        raise _core.DeviceError(f"{name}: expected CPU tensors, because this build of polyphase has no CUDA, got {x.device}; the "
                                "package polyphase-cuda13 has it")
    for other in tensors[1:]:
        if other is not None and other.dtype != x.dtype:
            raise _core.DTypeError(f"{name}: expected tensors of one dtype, got {x.dtype} and {other.dtype}")
        if other is not None and other.device != x.device:
            raise _core.DeviceError(f"{name}: expected tensors on one device, got {x.device} and {other.device}")


def dense(tensor):
    """Contiguous, with negation that torch has put off carried out."""
    return (tensor.resolve_neg() if tensor.is_neg() else tensor).contiguous()


def _address(tensor):
    return 0 if tensor is None else tensor.data_ptr()


def convolve(layer, x, weight, bias=None):
    """x (N, C_in, L_in) -> (N, C_out, L_out)."""
    plan = _plan_of_convolve(layer, x, weight, bias)
    y = x.new_empty(*plan.output)  # torch reads numbers in half the time of a tuple
    if plan.is_empty:
        return y
    x, weight, bias = dense(x), dense(weight), None if bias is None else dense(bias)
    workspace, execution = plan.execution(x)
    _core.conv_forward(plan.problem, plan.dtype, x.data_ptr(), weight.data_ptr(), _address(bias), 0, y.data_ptr(), *execution)
    return y


def activated(layer, epilogue, x, weight, bias, alpha, beta, residual, keep):
    """The result, and sums + bias if `keep`, else a tensor without elements."""
    require_alike(layer.name, (x, weight, bias, alpha, beta, residual))
    plan = _plan_of_convolve(layer, x, weight, bias)
    y, before = x.new_empty(*plan.output), x.new_empty(*plan.output) if keep else x.new_empty(0)
    if plan.is_empty:
        return y, before
    x, weight = dense(x), dense(weight)
    bias, alpha, beta, residual = (None if t is None else dense(t) for t in (bias, alpha, beta, residual))
    workspace, execution = plan.execution(x)
    _core.conv_forward(plan.problem, plan.dtype, x.data_ptr(), weight.data_ptr(), _address(bias), _address(residual), y.data_ptr(),
                       *execution, epilogue.activation, epilogue.slope, _address(alpha), _address(beta), epilogue.scale,
                       before.data_ptr() if keep else 0)
    return y, before


def backward(layer, grad, x, weight, length, kernel_size, with_bias):
    """The gradients of x (N, C_in, `length`), of the weight and of the bias from the output's (N, C_out, L_out), in one call: that of x
    if there is a weight, that of the weight if there is an x, that of the bias `with_bias` and an x; else None."""
    plan = _plan_of_backward(layer, grad, x, weight, length, kernel_size)
    dx = None if weight is None else grad.new_empty(*plan.input)
    dw = None if x is None else grad.new_empty(*plan.weight)
    db = grad.new_empty(plan.output[1]) if with_bias and x is not None else None
    if plan.is_empty:
        for sums in (dw, db):
            if sums is not None:
                sums.zero_()
        return dx, dw, db
    grad, x, weight = dense(grad), None if x is None else dense(x), None if weight is None else dense(weight)
    workspace, execution = plan.execution(grad)
    _core.conv_backward(plan.problem, plan.dtype, _address(x), _address(weight), grad.data_ptr(), _address(dx), _address(dw), _address(db),
                        *execution)
    return dx, dw, db


def input_grad(layer, grad, weight, length):
    """The input's gradient (N, C_in, `length`) from the output's (N, C_out, L_out)."""
    return backward(layer, grad, None, weight, length, weight.shape[2], False)[0]


def weight_grad(layer, x, grad, kernel_size, with_bias=False):
    """The gradients of the weight, and of the bias if `with_bias`, else a tensor without elements."""
    _, dw, db = backward(layer, grad, x, None, x.shape[2], kernel_size, with_bias)
    return dw, x.new_empty((0,)) if db is None else db
