"""residual + scale*activation(layer(x) + bias) in the convolution's pass over memory, and its gradients."""

import torch
from torch.autograd import forward_ad

from . import calls, gradients, kernels

ACTIVATIONS = ("none", "relu", "leaky_relu", "tanh", "snake")


def snake(x, alpha, beta):
    """x + sin(alpha*x)^2/beta; x (N, C, L), alpha and beta (C)."""
    alpha, beta = alpha[:, None], beta[:, None]
    return x + torch.sin(alpha * x).square() / beta


def activate(epilogue, x, alpha, beta):
    """The activation by torch's functions."""
    if epilogue.activation == "snake":
        return snake(x, alpha, alpha if beta is None else beta)
    if epilogue.activation == "leaky_relu":
        return torch.nn.functional.leaky_relu(x, epilogue.slope)
    return {"none": lambda x: x, "relu": torch.relu, "tanh": torch.tanh}[epilogue.activation](x)


def activated(layer, epilogue, x, weight, bias, alpha, beta, residual):
    """The result (N, C_out, L_out). Tensors have one dtype; x (N, C_in, L_in)."""
    tensors = (x, weight, bias, alpha, beta, residual)
    if forward_ad._current_level >= 0 or gradients._func_is_active():  # rare: in steps, which have tangents and vmap
        y = activate(epilogue, gradients.convolve(layer, x, weight, bias), alpha, beta)
        return y if residual is None else residual + epilogue.scale * y
    follows = gradients.needs_function(*tensors)
    keep = follows and needs_argument(epilogue, residual is not None)
    if gradients.needs_operator(*tensors):
        return calls.activated(layer, epilogue, *tensors, keep)[0]
    if follows:
        return gradients.apply(Activated, *tensors, layer, epilogue, keep)[0]
    return kernels.activated(layer, epilogue, *tensors, keep)[0]


def needs_argument(epilogue, has_residual):
    """Whether the backward pass needs the activation's argument, because the result does not tell its derivative."""
    activation = epilogue.activation
    return activation == "snake" or (activation != "none" and (has_residual or (activation == "leaky_relu" and epilogue.slope <= 0)))


def save(ctx, layer, epilogue, keep, tensors, outputs):
    x, weight, bias, alpha, beta, residual = tensors
    needs = ctx.needs_input_grad
    ctx.layer, ctx.epilogue, ctx.keep, ctx.has_residual = layer, epilogue, keep, residual is not None
    ctx.length, ctx.kernel_size = x.shape[2], weight.shape[2]
    ctx.set_materialize_grads(False)
    value = None if epilogue.activation == "none" else outputs[1] if keep else outputs[0]
    ctx.save_for_backward(x if needs[1] else None, weight if needs[0] else None, alpha, beta, value)


def backward(ctx, grad, argument_grad):
    """The gradients of x, weight, bias, alpha, beta and the residual."""
    x, weight, alpha, beta, value = ctx.saved_tensors
    needs = ctx.needs_input_grad
    sums, dalpha, dbeta, residual = None, None, None, grad if needs[5] else None
    if grad is not None:
        if not ctx.keep and needs_argument(ctx.epilogue, ctx.has_residual):
            raise RuntimeError("polyphase::conv_activated: expected keep=True for the gradients of this activation, got keep=False")
        scaled = grad * ctx.epilogue.scale if ctx.has_residual and ctx.epilogue.scale != 1 else grad
        sums, dalpha, dbeta = activation_backward(ctx.epilogue, ctx.keep, value, alpha, beta, scaled)
    if argument_grad is not None and ctx.keep:
        sums = argument_grad if sums is None else sums + argument_grad
    if sums is None:
        return (None,) * 6
    return (*gradients.layer_backward(ctx.layer, sums, x, weight, ctx.length, ctx.kernel_size, needs), dalpha if needs[3] else None,
            dbeta if needs[4] else None, residual)


def activation_backward(epilogue, is_argument, value, alpha, beta, grad):
    """The gradients of the activation's argument, alpha and beta; `value` is its argument or its result."""
    if epilogue.activation == "none":
        return grad, None, None
    if epilogue.activation == "relu":
        return torch.ops.aten.threshold_backward(grad, value, 0), None, None
    if epilogue.activation == "leaky_relu":
        return torch.ops.aten.leaky_relu_backward(grad, value, epilogue.slope, not is_argument), None, None
    if epilogue.activation == "tanh":
        return torch.ops.aten.tanh_backward(grad, value.tanh() if is_argument else value), None, None
    return snake_backward(value, alpha, beta, grad)


def snake_backward(x, alpha, beta, grad):
    """The gradients of x, alpha and beta; without beta alpha is in both places. 16-bit types are computed in f32."""
    dtype, shared = x.dtype, beta is None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x, alpha, grad = x.to(wide), alpha.to(wide)[:, None], grad.to(wide)
    beta = alpha if shared else beta.to(wide)[:, None]
    ratio = torch.sin(2 * alpha * x) / beta
    of_alpha = (grad * x * ratio).sum((0, 2))
    of_beta = -(grad * (torch.sin(alpha * x) / beta).square()).sum((0, 2))
    of_alpha = of_alpha + of_beta if shared else of_alpha
    return (grad * (1 + alpha * ratio)).to(dtype), of_alpha.to(dtype), None if shared else of_beta.to(dtype)


@gradients.function
class Activated(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias, alpha, beta, residual, layer, epilogue, keep):
        return kernels.activated(layer, epilogue, x, weight, bias, alpha, beta, residual, keep)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, layer, epilogue, keep = inputs
        save(ctx, layer, epilogue, keep, tensors, output)

    @staticmethod
    def backward(ctx, grad, argument_grad):
        return (*backward(ctx, grad, argument_grad), None, None, None)
