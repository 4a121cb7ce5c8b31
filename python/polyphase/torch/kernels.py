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
    """A layer on tensors of given shapes, dtype and device."""

    problem: tuple
    input: tuple   # (N, C_in, L_in)
    weight: tuple
    output: tuple  # (N, C_out, L_out)
    dtype: str
    device: int    # -1: the CPU
    precision: str
    is_empty: bool  # without samples

    def arguments(self, direction, like):
        """The workspace of a direction, and the arguments that follow it. The workspace must live until the call returns."""
        if self.device < 0:
            return None, (0, 0, -1, 0, self.precision)
        size = _core.workspace_bytes(self.problem, self.dtype, direction, self.precision, self.device)
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


def _make_plan(layer, like, x, weight, bias=None):
    """From shapes; `like` has the dtype and the device."""
    output = layer.output_shape(x, weight, bias)
    return Plan(layer.problem(x, weight), tuple(x), tuple(weight), output, DTYPES[like.dtype], like.get_device(), layer.precision, x[0] == 0)


def _plan_of_convolve(layer, x, weight, bias):
    key = ("forward", layer, *_facts(x), *_facts(weight), None if bias is None else _facts(bias))
    plan = _plans.get(key)
    if plan is not None:
        return plan
    require_alike(layer.name, (x, weight, bias))
    return _remember(key, _make_plan(layer, x, x.shape, weight.shape, None if bias is None else bias.shape))


def _plan_of_input_grad(layer, grad, weight, length):
    key = ("dgrad", layer, *_facts(grad), *_facts(weight), length)
    plan = _plans.get(key)
    if plan is not None:
        return plan
    require_alike(layer.name, (grad, weight))
    plan = _make_plan(layer, grad, (grad.shape[0], layer.in_channels(weight.shape), length), weight.shape)
    _require_shape(layer, grad, plan.output)
    return _remember(key, plan)


def _plan_of_weight_grad(layer, x, grad, kernel_size):
    key = ("wgrad", layer, *_facts(x), *_facts(grad), kernel_size)
    plan = _plans.get(key)
    if plan is not None:
        return plan
    require_alike(layer.name, (x, grad))
    plan = _make_plan(layer, x, x.shape, layer.weight_shape(x.shape[1], grad.shape[1], kernel_size))
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
    y = x.new_empty(plan.output)
    if plan.is_empty:
        return y
    x, weight, bias = dense(x), dense(weight), None if bias is None else dense(bias)
    workspace, arguments = plan.arguments("forward", x)
    _core.conv_forward(plan.problem, plan.dtype, x.data_ptr(), weight.data_ptr(), _address(bias), 0, y.data_ptr(), *arguments)
    return y


def activated(layer, epilogue, x, weight, bias, alpha, beta, residual, keep):
    """The result, and sums + bias if `keep`, else a tensor without elements."""
    require_alike(layer.name, (x, weight, bias, alpha, beta, residual))
    plan = _plan_of_convolve(layer, x, weight, bias)
    y, before = x.new_empty(plan.output), x.new_empty(plan.output if keep else (0,))
    if plan.is_empty:
        return y, before
    x, weight = dense(x), dense(weight)
    bias, alpha, beta, residual = (None if t is None else dense(t) for t in (bias, alpha, beta, residual))
    workspace, arguments = plan.arguments("forward", x)
    _core.conv_forward(plan.problem, plan.dtype, x.data_ptr(), weight.data_ptr(), _address(bias), _address(residual), y.data_ptr(),
                       *arguments, epilogue.activation, epilogue.slope, _address(alpha), _address(beta), epilogue.scale,
                       before.data_ptr() if keep else 0)
    return y, before


def input_grad(layer, grad, weight, length):
    """The input's gradient (N, C_in, `length`) from the output's (N, C_out, L_out)."""
    plan = _plan_of_input_grad(layer, grad, weight, length)
    dx = grad.new_empty(plan.input)
    if plan.is_empty:
        return dx
    grad, weight = dense(grad), dense(weight)
    workspace, arguments = plan.arguments("dgrad", grad)
    _core.conv_dgrad(plan.problem, plan.dtype, grad.data_ptr(), weight.data_ptr(), dx.data_ptr(), *arguments)
    return dx


def weight_grad(layer, x, grad, kernel_size, with_bias=False):
    """The gradients of the weight, and of the bias if `with_bias`, else a tensor without elements."""
    plan = _plan_of_weight_grad(layer, x, grad, kernel_size)
    dw, db = x.new_empty(plan.weight), x.new_empty((grad.shape[1] if with_bias else 0,))
    if plan.is_empty:
        return dw.zero_(), db.zero_()
    x, grad = dense(x), dense(grad)
    workspace, arguments = plan.arguments("wgrad", x)
    _core.conv_wgrad(plan.problem, plan.dtype, x.data_ptr(), grad.data_ptr(), dw.data_ptr(), db.data_ptr() if with_bias else 0, *arguments)
    return dw, db
