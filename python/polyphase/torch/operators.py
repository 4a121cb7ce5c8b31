"""Defines torch.ops.polyphase for torch 2.4 and later: each operator has kernels on CPU and CUDA, a fake, gradients, and where it makes
sense autocast and vmap."""

import torch
from torch.autograd import forward_ad

from . import antialias, calls, fused, gradients, kernels, vmap_rules
from polyphase._layer import Layer

_LIBRARY = torch.library.Library("polyphase", "DEF")
_LAYER = "bool transposed, int stride, int[2] padding, SymInt output_padding, int dilation, int groups, str precision"


def _layer(transposed, stride, padding, output_padding, dilation, groups, precision):
    padding = (padding, padding) if isinstance(padding, int) else (padding[0], padding[1])
    return Layer(transposed, stride, padding, output_padding, dilation, groups, precision)


def _define(name, schema, kernel, fake, backward=None, setup_context=None, vmap=None):
    def without_tangents(*args, **named):
        if forward_ad._current_level >= 0:  # the dispatcher would drop them
            raise NotImplementedError(f"torch.ops.polyphase.{name}: expected no forward-mode differentiation, which only the functions of "
                                      "polyphase.torch have")
        return kernel(*args, **named)

    _LIBRARY.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, without_tangents, key)
    torch.library.register_fake(f"polyphase::{name}", fake, lib=_LIBRARY)
    if backward is not None:
        torch.library.register_autograd(f"polyphase::{name}", backward, setup_context=setup_context, lib=_LIBRARY)
    if vmap is not None and hasattr(torch.library, "register_vmap"):
        torch.library.register_vmap(f"polyphase::{name}", vmap, lib=_LIBRARY)


def _pad(gradients, inputs):
    """One gradient for each input of an operator; those after the tensors have none."""
    return (*gradients, *(None,) * (inputs - len(gradients)))


# ---- the two layers -----------------------------------------------------------------------------------------------------------------


def _define_layer(name, schema, layer_of, inputs):
    """`layer_of`: the Layer of the operator's arguments behind the bias."""

    def kernel(x, weight, bias=None, *numbers, **named):
        return kernels.convolve(layer_of(*numbers, **named), x, weight, bias)

    def fake(x, weight, bias=None, *numbers, **named):
        layer = layer_of(*numbers, **named)
        kernels.require_alike(layer.name, (x, weight, bias), is_fake=True)
        return x.new_empty(layer.output_shape(x.shape, weight.shape, None if bias is None else bias.shape))

    def setup_context(ctx, inputs, output):
        x, weight, _, *numbers = inputs
        gradients.save_for_convolve(ctx, layer_of(*numbers), x, weight)

    def backward(ctx, grad):
        return _pad(gradients.convolve_backward(ctx, grad), inputs)

    def vmap(info, in_dims, x, weight, bias=None, *numbers, **named):
        dims = (*in_dims, None, None, None)[:3]
        return vmap_rules.convolve(calls.convolve, info.batch_size, dims, layer_of(*numbers, **named), x, weight, bias)

    _define(name, schema, kernel, fake, backward, setup_context, vmap)


def _transposed(stride=1, padding=0, output_padding=0, groups=1, dilation=1, precision="fp32"):
    return _layer(True, stride, padding, output_padding, dilation, groups, precision)


def _plain(stride=1, padding=0, dilation=1, groups=1, precision="fp32"):
    return _layer(False, stride, padding, 0, dilation, groups, precision)


_define_layer("conv_transpose1d", "(Tensor input, Tensor weight, Tensor? bias=None, int stride=1, int[2] padding=0, SymInt output_padding=0, "
              "int groups=1, int dilation=1, str precision='fp32') -> Tensor", _transposed, 9)
_define_layer("conv1d", "(Tensor input, Tensor weight, Tensor? bias=None, int stride=1, int[2] padding=0, int dilation=1, int groups=1, "
              "str precision='fp32') -> Tensor", _plain, 8)


# ---- their gradients ----------------------------------------------------------------------------------------------------------------


def _input_grad_kernel(grad, weight, length, *layer):
    return kernels.input_grad(_layer(*layer), grad, weight, length)


def _input_grad_fake(grad, weight, length, *layer):
    layer = _layer(*layer)
    return grad.new_empty((grad.shape[0], layer.in_channels(weight.shape), length))


def _input_grad_setup(ctx, inputs, output):
    grad, weight, ctx.length, *layer = inputs
    gradients.save_for_input_grad(ctx, _layer(*layer), grad, weight)


def _input_grad_vmap(info, in_dims, grad, weight, length, *layer):
    return vmap_rules.input_grad(calls.input_grad, info.batch_size, in_dims[:2], _layer(*layer), grad, weight, length)


_define("conv_input_grad", f"(Tensor grad, Tensor weight, SymInt length, {_LAYER}) -> Tensor", _input_grad_kernel, _input_grad_fake,
        lambda ctx, gradient: _pad(gradients.input_grad_backward(ctx, gradient), 10), _input_grad_setup, _input_grad_vmap)


def _weight_grad_kernel(x, grad, kernel_size, with_bias, *layer):
    return kernels.weight_grad(_layer(*layer), x, grad, kernel_size, with_bias)


def _weight_grad_fake(x, grad, kernel_size, with_bias, *layer):
    shape = _layer(*layer).weight_shape(x.shape[1], grad.shape[1], kernel_size)
    return x.new_empty(shape), x.new_empty((grad.shape[1] if with_bias else 0,))


def _weight_grad_setup(ctx, inputs, output):
    x, grad, ctx.kernel_size, with_bias, *layer = inputs
    gradients.save_for_weight_grad(ctx, _layer(*layer), x, grad, with_bias)


def _weight_grad_vmap(info, in_dims, x, grad, kernel_size, with_bias, *layer):
    return vmap_rules.weight_grad(calls.weight_grad, info.batch_size, in_dims[:2], _layer(*layer), x, grad, kernel_size, with_bias)


_define("conv_weight_grad", f"(Tensor input, Tensor grad, SymInt kernel_size, bool with_bias, {_LAYER}) -> (Tensor, Tensor)",
        _weight_grad_kernel, _weight_grad_fake, lambda ctx, *given: _pad(gradients.weight_grad_backward(ctx, *given), 11),
        _weight_grad_setup, _weight_grad_vmap)


# ---- with an activation and a residual ----------------------------------------------------------------------------------------------


def _split(arguments):
    """(Epilogue, keep, Layer) of the arguments behind the tensors."""
    return kernels.Epilogue(*arguments[:3]), arguments[3], _layer(*arguments[4:])


def _activated_kernel(x, weight, bias, alpha, beta, residual, *arguments):
    epilogue, keep, layer = _split(arguments)
    return kernels.activated(layer, epilogue, x, weight, bias, alpha, beta, residual, keep)


def _activated_fake(x, weight, bias, alpha, beta, residual, *arguments):
    _, keep, layer = _split(arguments)
    kernels.require_alike(layer.name, (x, weight, bias, alpha, beta, residual), is_fake=True)
    shape = layer.output_shape(x.shape, weight.shape, None if bias is None else bias.shape)
    return x.new_empty(shape), x.new_empty(shape if keep else (0,))


def _activated_setup(ctx, inputs, output):
    *tensors, activation, slope, scale, keep = inputs[:10]
    fused.save(ctx, _layer(*inputs[10:]), kernels.Epilogue(activation, slope, scale), keep, tensors, output)


_define("conv_activated", "(Tensor input, Tensor weight, Tensor? bias, Tensor? alpha, Tensor? beta, Tensor? residual, str activation, "
        f"float slope, float scale, bool keep, {_LAYER}) -> (Tensor, Tensor)", _activated_kernel, _activated_fake,
        lambda ctx, *given: _pad(fused.backward(ctx, *given), 17), _activated_setup)


# ---- the anti-aliased activation ------------------------------------------------------------------------------------------------------


def _antialias_fake(x, *others):
    antialias.check(x, *others, is_fake=True)
    return x.new_empty(x.shape)


_define("antialias_snake", "(Tensor input, Tensor alpha, Tensor beta, Tensor up, Tensor down) -> Tensor", antialias.forward, _antialias_fake,
        lambda ctx, grad: _pad(antialias.saved_backward(ctx, grad), 5), lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
_define("antialias_snake_backward", "(Tensor grad, Tensor input, Tensor alpha, Tensor beta, Tensor up, Tensor down) -> (Tensor, Tensor, Tensor)",
        antialias.backward, lambda grad, x, alpha, beta, *_: (x.new_empty(x.shape), torch.empty_like(alpha), torch.empty_like(beta)))


# ---- autocast -----------------------------------------------------------------------------------------------------------------------


def _define_autocast(name, device_type, key):
    op = getattr(torch.ops.polyphase, name)

    def kernel(*args, **named):
        dtype = torch.get_autocast_dtype(device_type)
        args = [gradients.lowered(arg, dtype) if isinstance(arg, torch.Tensor) else arg for arg in args]
        with torch.autocast(device_type, enabled=False):
            return op(*args, **named)

    _LIBRARY.impl(name, kernel, key)


for _name in ("conv_transpose1d", "conv1d", "conv_activated", "antialias_snake"):
    _define_autocast(_name, "cpu", "AutocastCPU")
    _define_autocast(_name, "cuda", "AutocastCUDA")
