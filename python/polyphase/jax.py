"""polyphase's convolutions for JAX: as foreign functions of XLA, differentiable to any order, under jit, grad and vmap.

The arrays' device decides: the CPU or an NVIDIA GPU. All arrays of a call have one dtype of float64, float32, float16 and bfloat16.
"""

import functools

try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("polyphase.jax needs JAX; install the package jax") from error
import numpy as np

from polyphase import _batching, _core
from polyphase._layer import Layer, both_ends, single

__all__ = ["conv1d", "conv_transpose1d"]

if not hasattr(_core, "_xla_handlers"):
    raise ImportError("polyphase.jax: expected a build of polyphase with XLA handlers, got one made without the headers of the package jax; "
                      "build it with -Djax=enabled")
for (_name, _platform), _capsule in _core._xla_handlers.items():
    jax.ffi.register_ffi_target(_name, _capsule, platform=_platform, api_version=1)

_DTYPES = ("float64", "float32", "float16", "bfloat16")


def conv_transpose1d(x, weight, bias=None, *, stride=1, padding=0, output_padding=0, groups=1, dilation=1, precision="fp32"):
    """x (N, C_in, L_in), weight (C_in, C_out/groups, K), bias (C_out) or None -> (N, C_out, L_out),
    L_out = (L_in - 1)*stride - P_l - P_r + dilation*(K - 1) + output_padding + 1. `padding` is one number, or (P_l, P_r).

    precision, for float32: "ieee", "fp32" (an error no worse than ieee's) or "tf32". The meaning of the arguments is PyTorch's: the output is
    the gradient of a convolution by its input, and taps are not reversed. Raises ShapeError (a ValueError), DTypeError (a TypeError).
    """
    name = "conv_transpose1d"
    layer = Layer(True, single(name, "stride", stride), both_ends(name, padding, None, None, None),
                  single(name, "output_padding", output_padding), single(name, "dilation", dilation), groups, _checked(precision))
    return _apply(layer, x, weight, bias)


def conv1d(x, weight, bias=None, *, stride=1, padding=0, groups=1, dilation=1, precision="fp32"):
    """x (N, C_in, L_in), weight (C_out, C_in/groups, K), bias (C_out) or None -> (N, C_out, L_out),
    L_out = (L_in + P_l + P_r - dilation*(K - 1) - 1)/stride + 1 rounded down. `padding` is one number, (P_l, P_r), "valid" or, with
    stride 1, "same". Otherwise as conv_transpose1d."""
    stride, dilation = single("conv1d", "stride", stride), single("conv1d", "dilation", dilation)
    padding = both_ends("conv1d", padding, jnp.shape(weight)[-1], stride, dilation)
    return _apply(Layer(False, stride, padding, 0, dilation, groups, _checked(precision)), x, weight, bias)


def _checked(precision):
    if precision not in ("ieee", "fp32", "tf32"):
        raise ValueError(f"precision: expected one of ieee, fp32, tf32, got {precision!r}")
    return precision


def _apply(layer, x, weight, bias):
    x, weight = jnp.asarray(x), jnp.asarray(weight)
    bias = None if bias is None else jnp.asarray(bias)
    layer.output_shape(x.shape, weight.shape, None if bias is None else bias.shape)
    if x.dtype.name not in _DTYPES:
        raise _core.DTypeError(f"{layer.name}: expected {', '.join(_DTYPES)}, got {x.dtype}")
    for other in (weight, bias):
        if other is not None and other.dtype != x.dtype:
            raise _core.DTypeError(f"{layer.name}: expected arrays of one dtype, got {x.dtype} and {other.dtype}")
    return _convolve(layer, x, weight, bias)


# ---- calls of the handlers ----------------------------------------------------------------------------------------------------------


def _call(name, layer, shapes, x, weight, *arrays):
    """`shapes` of the results; `x` and `weight` are the layer's shapes."""
    kind = arrays[0].dtype
    results = [jax.ShapeDtypeStruct(shape, kind) for shape in shapes]
    problem = np.array([int(number) for number in layer.problem(x, weight)], np.int64)
    return jax.ffi.ffi_call(f"polyphase_conv_{name}", results)(*arrays, problem=problem, precision=layer.precision)


def _raw_convolve(layer, x, weight, bias):
    shape = layer.output_shape(x.shape, weight.shape)
    return _call("forward", layer, [shape], x.shape, weight.shape, x, weight, jnp.zeros((0,), x.dtype) if bias is None else bias)[0]


def _raw_input_grad(layer, grad, weight, length):
    shape = (grad.shape[0], layer.in_channels(weight.shape), length)
    return _call("dgrad", layer, [shape], shape, weight.shape, grad, weight)[0]


def _raw_weight_grad(layer, x, grad, kernel_size, with_bias):
    weight = layer.weight_shape(x.shape[1], grad.shape[1], kernel_size)
    return tuple(_call("wgrad", layer, [weight, (grad.shape[1] if with_bias else 0,)], x.shape, weight, x, grad))


def _mapped(call, rule, arrays):
    """`call` of (layer, *arrays, *numbers) with vmap by a rule of _batching."""

    def mapped(layer, *arguments):
        given, numbers = arguments[:arrays], arguments[arrays:]
        present = [array is not None for array in given]

        def restored(tensors):
            tensors = iter(tensors)
            return [next(tensors) if there else None for there in present]

        @jax.custom_batching.custom_vmap
        def compute(*tensors):
            return call(layer, *restored(tensors), *numbers)

        @compute.def_vmap
        def by_folding(size, in_batched, *tensors):
            flags = [bool(flag) for flag in restored(in_batched)]
            result = rule(mapped, jnp.broadcast_to, size, flags, layer, *restored(tensors), *numbers)
            return result, jax.tree.map(lambda _: True, result)

        return compute(*(array for array in given if array is not None))

    return mapped


_mapped_convolve = _mapped(_raw_convolve, _batching.convolve, 3)
_mapped_input_grad = _mapped(_raw_input_grad, _batching.input_grad, 2)
_mapped_weight_grad = _mapped(_raw_weight_grad, _batching.weight_grad, 2)


# ---- gradients: each of the three is the gradient of the others by one array ---------------------------------------------------------


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolve(layer, x, weight, bias):
    return _mapped_convolve(layer, x, weight, bias)


def _convolve_forward(layer, x, weight, bias):
    return _convolve(layer, x, weight, bias), (x, weight, bias is not None)


def _convolve_backward(layer, saved, grad):
    x, weight, with_bias = saved
    dw, db = _weight_grad(layer, weight.shape[2], with_bias, x, grad)
    return _input_grad(layer, x.shape[2], grad, weight), dw, db if with_bias else None


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _input_grad(layer, length, grad, weight):
    return _mapped_input_grad(layer, grad, weight, length)


def _input_grad_forward(layer, length, grad, weight):
    return _input_grad(layer, length, grad, weight), (grad, weight)


def _input_grad_backward(layer, length, saved, gradient):
    grad, weight = saved
    return _convolve(layer, gradient, weight, None), _weight_grad(layer, weight.shape[2], False, gradient, grad)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _weight_grad(layer, kernel_size, with_bias, x, grad):
    return _mapped_weight_grad(layer, x, grad, kernel_size, with_bias)


def _weight_grad_forward(layer, kernel_size, with_bias, x, grad):
    return _weight_grad(layer, kernel_size, with_bias, x, grad), (x, grad)


def _weight_grad_backward(layer, kernel_size, with_bias, saved, gradients):
    (x, grad), (gradient, bias_gradient) = saved, gradients
    return _input_grad(layer, x.shape[2], grad, gradient), _convolve(layer, x, gradient, bias_gradient if with_bias else None)


_convolve.defvjp(_convolve_forward, _convolve_backward)
_input_grad.defvjp(_input_grad_forward, _input_grad_backward)
_weight_grad.defvjp(_weight_grad_forward, _weight_grad_backward)
