"""vmap: a mapped dimension is folded into the samples, or into the groups if the weights are mapped too."""


def _front(tensor, dim):
    return tensor if tensor is None or dim is None else tensor.movedim(dim, 0)


def _to_samples(tensor):
    """(B, N, ...) -> (B*N, ...)"""
    return tensor.flatten(0, 1)


def _to_channels(tensor, dim, size):
    """(B, N, C, L) -> (N, B*C, L); a tensor that is not mapped is repeated."""
    tensor = tensor.unsqueeze(0).expand(size, *tensor.shape) if dim is None else tensor
    return tensor.transpose(0, 1).flatten(1, 2)


def _from_channels(tensor, size):
    """(N, B*C, L) -> (B, N, C, L)"""
    return tensor.unflatten(1, (size, tensor.shape[1] // size)).transpose(0, 1)


def _to_groups(layer, size):
    return layer._replace(groups=layer.groups * size)


def convolve(call, size, dims, layer, x, weight, bias):
    x_dim, weight_dim, bias_dim = dims
    x, weight, bias = (_front(tensor, dim) for tensor, dim in zip((x, weight, bias), dims))
    if weight_dim is not None:
        if bias is not None:
            bias = (bias if bias_dim is not None else bias.unsqueeze(0).expand(size, -1)).flatten()
        return _from_channels(call(_to_groups(layer, size), _to_channels(x, x_dim, size), _to_samples(weight), bias), size), 0
    own_bias = None if bias_dim is not None else bias
    if x_dim is None:
        y = call(layer, x, weight, own_bias).unsqueeze(0)
    else:
        y = call(layer, _to_samples(x), weight, own_bias).unflatten(0, x.shape[:2])
    return (y if bias_dim is None else y + bias[:, None, :, None]), 0


def input_grad(call, size, dims, layer, grad, weight, length):
    grad_dim, weight_dim = dims
    grad, weight = _front(grad, grad_dim), _front(weight, weight_dim)
    if weight_dim is not None:
        return _from_channels(call(_to_groups(layer, size), _to_channels(grad, grad_dim, size), _to_samples(weight), length), size), 0
    return call(layer, _to_samples(grad), weight, length).unflatten(0, grad.shape[:2]), 0


def weight_grad(call, size, dims, layer, x, grad, kernel_size, with_bias):
    x, grad = _front(x, dims[0]), _front(grad, dims[1])
    dw, db = call(_to_groups(layer, size), _to_channels(x, dims[0], size), _to_channels(grad, dims[1], size), kernel_size, with_bias)
    return (dw.unflatten(0, (size, dw.shape[0] // size)), db.unflatten(0, (size, db.shape[0] // size))), (0, 0)
