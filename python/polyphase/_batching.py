"""vmap of polyphase.torch and polyphase.jax: a mapped dimension is folded into the samples, or into the groups if the weights are mapped
too. Mapped tensors have it in front. `call` computes without it; `expand(array, shape)` is the library's broadcasting."""


def _to_samples(array):
    """(B, N, ...) -> (B*N, ...)"""
    return array.reshape((array.shape[0] * array.shape[1], *array.shape[2:]))


def _from_samples(array, size):
    """(B*N, ...) -> (B, N, ...)"""
    return array.reshape((size, array.shape[0] // size, *array.shape[1:]))


def _to_channels(array, is_mapped, size, expand):
    """(B, N, C, L) -> (N, B*C, L); an array that is not mapped is repeated."""
    array = array if is_mapped else expand(array[None], (size, *array.shape))
    array = array.swapaxes(0, 1)
    return array.reshape((array.shape[0], array.shape[1] * array.shape[2], array.shape[3]))


def _from_channels(array, size):
    """(N, B*C, L) -> (B, N, C, L)"""
    return array.reshape((array.shape[0], size, array.shape[1] // size, array.shape[2])).swapaxes(0, 1)


def _to_groups(layer, size):
    return layer._replace(groups=layer.groups * size)


def convolve(call, expand, size, mapped, layer, x, weight, bias):
    x_mapped, weight_mapped, bias_mapped = mapped
    if weight_mapped:
        if bias is not None:
            bias = (bias if bias_mapped else expand(bias[None], (size, *bias.shape))).reshape((-1,))
        return _from_channels(call(_to_groups(layer, size), _to_channels(x, x_mapped, size, expand), _to_samples(weight), bias), size)
    own_bias = None if bias_mapped else bias
    y = _from_samples(call(layer, _to_samples(x), weight, own_bias), size) if x_mapped else call(layer, x, weight, own_bias)[None]
    return y + bias[:, None, :, None] if bias_mapped else y


def input_grad(call, expand, size, mapped, layer, grad, weight, length):
    grad_mapped, weight_mapped = mapped
    if weight_mapped:
        grad = _to_channels(grad, grad_mapped, size, expand)
        return _from_channels(call(_to_groups(layer, size), grad, _to_samples(weight), length), size)
    return _from_samples(call(layer, _to_samples(grad), weight, length), size)


def weight_grad(call, expand, size, mapped, layer, x, grad, kernel_size, with_bias):
    x, grad = _to_channels(x, mapped[0], size, expand), _to_channels(grad, mapped[1], size, expand)
    dw, db = call(_to_groups(layer, size), x, grad, kernel_size, with_bias)
    return _from_samples(dw, size), db.reshape((size, db.shape[0] // size))
