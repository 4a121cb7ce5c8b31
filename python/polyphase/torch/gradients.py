"""The convolutions with their gradients.

A layer's sum over all outputs, times their gradients, is linear in each of input x, weight w and output gradient g. `convolve`, `input_grad`
and `weight_grad` are its derivatives by g, x and w; so each one's gradients are the other two, to any order.

Each runs in one of three ways: straight on the kernels if nothing has to know; as a torch.autograd.Function if gradients are recorded in
eager mode, or under torch.func; else as an operator of torch.ops.polyphase (compilers, fake tensors, modes, tensor subclasses), which
torch 2.4 and later have.
"""

import torch
from torch.autograd import forward_ad

from . import calls, kernels, vmap_rules

HAS_OPERATORS = hasattr(torch.library, "register_fake")
_func_is_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
is_compiling = torch.compiler.is_compiling if HAS_OPERATORS else lambda: False
_tracing_state = torch._C._get_tracing_state
_mode_count = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) if hasattr(torch.nn, "Buffer") else (torch.Tensor, torch.nn.Parameter)


def needs_operator(*tensors):
    """Whether a call must be seen by torch's dispatcher."""
    if not HAS_OPERATORS:
        return False
    if is_compiling() or _mode_count() > 0 or _tracing_state() is not None:
        return True
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or tensor.is_meta):
            return True
    return False


def needs_function(*tensors):
    """Whether a call that needs no operator has gradients, tangents or a torch.func transform to follow."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return forward_ad._current_level >= 0 or _func_is_active()


def way_of(*tensors):
    """What computes a call on these tensors: `kernels`, Functions or `calls`; each has convolve, input_grad and weight_grad."""
    if needs_operator(*tensors):
        return calls
    return Functions if needs_function(*tensors) else kernels


def convolve(layer, x, weight, bias=None):
    """x (N, C_in, L_in), weight, bias (C_out) or None -> (N, C_out, L_out)."""
    return way_of(x, weight, bias).convolve(layer, x, weight, bias)


def input_grad(layer, grad, weight, length):
    """The gradient of x (N, C_in, `length`) from that of the output."""
    return way_of(grad, weight).input_grad(layer, grad, weight, length)


def weight_grad(layer, x, grad, kernel_size, with_bias=False):
    """The gradients of the weight and, `with_bias`, of the bias (else a tensor without elements)."""
    return way_of(x, grad).weight_grad(layer, x, grad, kernel_size, with_bias)


class Functions:
    """Calls of the torch.autograd.Functions below."""

    @staticmethod
    def convolve(layer, x, weight, bias=None):
        return apply(Convolution, x, weight, bias, layer)

    @staticmethod
    def input_grad(layer, grad, weight, length):
        return apply(InputGrad, grad, weight, layer, length)

    @staticmethod
    def weight_grad(layer, x, grad, kernel_size, with_bias=False):
        return apply(WeightGrad, x, grad, layer, kernel_size, with_bias)


# ---- the formulas, for Functions and operators alike --------------------------------------------------------------------------------


def save_for_convolve(ctx, layer, x, weight):
    needs_x, needs_weight, *_ = ctx.needs_input_grad
    ctx.layer = layer
    if not (needs_x and needs_weight):
        ctx.length, ctx.kernel_size = x.shape[2], weight.shape[2]
    ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)


def convolve_backward(ctx, grad):
    """The gradients of x, weight and bias."""
    (x, weight), needs = ctx.saved_tensors, (*ctx.needs_input_grad, False)  # an operator may be called without the bias
    length = ctx.length if x is None else x.shape[2]
    kernel_size = ctx.kernel_size if weight is None else weight.shape[2]
    return layer_backward(ctx.layer, grad, x, weight, length, kernel_size, needs)


def layer_backward(layer, grad, x, weight, length, kernel_size, needs):
    """The gradients of x, weight and bias, each if it is needed."""
    way, dx, dw, db = way_of(grad, x, weight), None, None, None
    if way is kernels and (needs[0] or needs[1]):
        dx, dw, db = kernels.backward(layer, grad, x if needs[1] else None, weight if needs[0] else None, length, kernel_size, needs[2])
        return dx, dw, grad.sum((0, 2)) if needs[2] and db is None else db
    if needs[0]:
        dx = way.input_grad(layer, grad, weight, length)
    if needs[1]:
        dw, db = way.weight_grad(layer, x, grad, kernel_size, needs[2])
    elif needs[2]:
        db = grad.sum((0, 2))
    return dx, dw, db if needs[2] else None


def save_for_input_grad(ctx, layer, grad, weight):
    ctx.layer, ctx.kernel_size = layer, weight.shape[2]
    ctx.save_for_backward(grad, weight)


def input_grad_backward(ctx, gradient):
    """The gradients of the output's gradient and of the weight, from that of x's."""
    (grad, weight), needs = ctx.saved_tensors, ctx.needs_input_grad
    return (convolve(ctx.layer, gradient, weight) if needs[0] else None,
            weight_grad(ctx.layer, gradient, grad, ctx.kernel_size)[0] if needs[1] else None)


def save_for_weight_grad(ctx, layer, x, grad, with_bias):
    ctx.layer, ctx.length, ctx.with_bias = layer, x.shape[2], with_bias
    ctx.save_for_backward(x, grad)


def weight_grad_backward(ctx, gradient, bias_gradient):
    """The gradients of x and of the output's gradient, from those of the weight's and the bias'."""
    (x, grad), needs = ctx.saved_tensors, ctx.needs_input_grad
    return (input_grad(ctx.layer, grad, gradient, ctx.length) if needs[0] else None,
            convolve(ctx.layer, x, gradient, bias_gradient if ctx.with_bias else None) if needs[1] else None)


# ---- torch.autograd.Function --------------------------------------------------------------------------------------------------------


def function(cls):
    """Gives a Function with setup_context(), which torch.func needs, the member `whole`: the same without, which torch before 2.0 needs and
    which later ones call five times as fast."""

    def forward(ctx, *inputs):
        output = cls.forward(*inputs)
        cls.setup_context(ctx, inputs, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(cls.backward)}
    if "jvp" in vars(cls):
        members["jvp"] = staticmethod(cls.jvp)
    cls.whole = type(cls.__name__, (torch.autograd.Function,), members)
    return cls


def apply(cls, *inputs):
    return cls.apply(*inputs) if _func_is_active() else cls.whole.apply(*inputs)


def save_for_jvp(ctx, *tensors):
    if forward_ad._current_level >= 0:
        ctx.save_for_forward(*tensors)


def lowered(tensor, dtype):
    """As autocast casts: floating-point tensors but f64."""
    return tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor


def added(*terms):
    """The sum of the terms that are not None."""
    terms = [term for term in terms if term is not None]
    return sum(terms[1:], terms[0]) if terms else None


@function
class Convolution(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias, layer):
        return kernels.convolve(layer, x, weight, bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, layer = inputs
        save_for_convolve(ctx, layer, x, weight)
        if forward_ad._current_level >= 0:
            ctx.output_shape = output.shape
            ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx, grad):
        return (*convolve_backward(ctx, grad), None)

    @staticmethod
    def jvp(ctx, x_tangent, weight_tangent, bias_tangent, _):
        x, weight = ctx.saved_tensors
        return added(None if x_tangent is None else convolve(ctx.layer, x_tangent, weight),
                     None if weight_tangent is None else convolve(ctx.layer, x, weight_tangent),
                     None if bias_tangent is None else bias_tangent[:, None].expand(ctx.output_shape))

    @staticmethod
    def vmap(info, in_dims, x, weight, bias, layer):
        return vmap_rules.convolve(convolve, info.batch_size, in_dims[:3], layer, x, weight, bias)


@function
class InputGrad(torch.autograd.Function):
    @staticmethod
    def forward(grad, weight, layer, length):
        return kernels.input_grad(layer, grad, weight, length)

    @staticmethod
    def setup_context(ctx, inputs, output):
        grad, weight, layer, ctx.length = inputs
        save_for_input_grad(ctx, layer, grad, weight)
        save_for_jvp(ctx, grad, weight)

    @staticmethod
    def backward(ctx, gradient):
        return (*input_grad_backward(ctx, gradient), None, None)

    @staticmethod
    def jvp(ctx, grad_tangent, weight_tangent, *_):
        grad, weight = ctx.saved_tensors
        return added(None if grad_tangent is None else input_grad(ctx.layer, grad_tangent, weight, ctx.length),
                     None if weight_tangent is None else input_grad(ctx.layer, grad, weight_tangent, ctx.length))

    @staticmethod
    def vmap(info, in_dims, grad, weight, layer, length):
        return vmap_rules.input_grad(input_grad, info.batch_size, in_dims[:2], layer, grad, weight, length)


@function
class WeightGrad(torch.autograd.Function):
    @staticmethod
    def forward(x, grad, layer, kernel_size, with_bias):
        return kernels.weight_grad(layer, x, grad, kernel_size, with_bias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, grad, layer, ctx.kernel_size, with_bias = inputs
        save_for_weight_grad(ctx, layer, x, grad, with_bias)
        save_for_jvp(ctx, x, grad)

    @staticmethod
    def backward(ctx, gradient, bias_gradient):
        return (*weight_grad_backward(ctx, gradient, bias_gradient), None, None, None)

    @staticmethod
    def jvp(ctx, x_tangent, grad_tangent, *_):
        x, grad = ctx.saved_tensors
        layer, kernel_size = ctx.layer, ctx.kernel_size
        of_x = None if x_tangent is None else weight_grad(layer, x_tangent, grad, kernel_size)[0]
        of_grad = (None, None) if grad_tangent is None else weight_grad(layer, x, grad_tangent, kernel_size, ctx.with_bias)
        bias = of_grad[1] if of_grad[1] is not None else x.new_zeros(grad.shape[1] if ctx.with_bias else 0)
        return added(of_x, of_grad[0]), bias

    @staticmethod
    def vmap(info, in_dims, x, grad, layer, kernel_size, with_bias):
        return vmap_rules.weight_grad(weight_grad, info.batch_size, in_dims[:2], layer, x, grad, kernel_size, with_bias)
