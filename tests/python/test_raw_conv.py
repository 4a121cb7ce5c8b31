"""Convolutions on raw addresses against plain sums."""
import itertools

import numpy as np
import polyphase as pp
import pytest
from polyphase import _core

CASES = [  # transposed, N, C_in, C_out, L_in, K, S, P_l, P_r, OP, D, G
    (True, 2, 3, 4, 5, 4, 2, 1, 1, 0, 1, 1),
    (True, 1, 4, 6, 7, 3, 3, 0, 2, 1, 2, 2),
    (True, 3, 4, 4, 9, 5, 1, 2, 2, 0, 3, 4),
    (False, 2, 3, 4, 11, 4, 2, 1, 3, 0, 1, 1),
    (False, 1, 4, 6, 13, 3, 3, 0, 2, 0, 2, 2),
    (False, 2, 5, 5, 9, 3, 1, 1, 1, 0, 1, 5),
]


def plain(problem, x, w):
    """y, as a sum over every tap; also the map (dy -> dx, dw) by the same loop."""
    transposed, N, C_in, C_out, L_in, K, S, P_l, _, _, D, G = problem
    L_out = _core.output_length(problem)
    y = np.zeros((N, C_out, L_out))
    for g, i, k in itertools.product(range(G), range(L_in if transposed else L_out), range(K)):
        low, high = i, S * i + k * D - P_l
        ci, co = slice(g * C_in // G, (g + 1) * C_in // G), slice(g * C_out // G, (g + 1) * C_out // G)
        if transposed and 0 <= high < L_out:
            y[:, co, high] += x[:, ci, low] @ w[ci, :, k]
        elif not transposed and 0 <= high < L_in:
            y[:, co, low] += x[:, ci, high] @ w[co, :, k].T
    return y


def random_case(problem):
    transposed, N, C_in, C_out, L_in, K, *_, G = problem
    random = np.random.default_rng(1)
    x = random.standard_normal((N, C_in, L_in))
    w = random.standard_normal((C_in, C_out // G, K) if transposed else (C_out, C_in // G, K))
    y = random.standard_normal((N, C_out, _core.output_length(problem)))
    return x, w, y


def forward(problem, x, w, y, bias=0, residual=0, **following):
    _core.conv_forward(problem, "f64", x.ctypes.data, w.ctypes.data, bias, residual, y.ctypes.data, 0, 0, -1, 0, "fp32", **following)


@pytest.mark.parametrize("problem", CASES)
def test_forward_is_the_plain_sum(problem):
    x, w, y = random_case(problem)
    forward(problem, x, w, y)
    assert np.abs(y - plain(problem, x, w)).max() < 1e-13


@pytest.mark.parametrize("problem", CASES)
def test_gradients_are_the_adjoints(problem):
    """<dy, layer(x, w)> is linear in x and in w: <dx, x'> and <dw, w'> for any x' and w'."""
    x, w, dy = random_case(problem)
    dx, dw, db = np.full_like(x, np.nan), np.full_like(w, np.nan), np.full(problem[3], np.nan)
    tail = (0, 0, -1, 0, "fp32")
    addresses = [array.ctypes.data for array in (x, w, dy, dx, dw, db)]
    _core.conv_backward(problem, "f64", *addresses, *tail)
    alone = [np.empty_like(array) for array in (dx, dw, db)]
    for position, (array, together) in enumerate(zip(alone, (dx, dw, db))):
        only = [array.ctypes.data if position == other else 0 for other in range(3)]
        _core.conv_backward(problem, "f64", x.ctypes.data if position == 1 else 0, w.ctypes.data if position == 0 else 0, dy.ctypes.data, *only, *tail)
        assert (array == together).all()
    for index in np.ndindex(x.shape):
        other = np.zeros_like(x)
        other[index] = 1
        assert abs((dy * plain(problem, other, w)).sum() - dx[index]) < 1e-12
    for index in np.ndindex(w.shape):
        other = np.zeros_like(w)
        other[index] = 1
        assert abs((dy * plain(problem, x, other)).sum() - dw[index]) < 1e-12
    assert np.abs(db - dy.sum((0, 2))).max() < 1e-12


def test_what_follows_the_sums():
    problem = CASES[3]
    x, w, residual = random_case(problem)
    random = np.random.default_rng(2)
    bias, alpha, beta = (random.uniform(0.5, 1, problem[3]) for _ in range(3))
    sums = plain(problem, x, w) + bias[:, None]
    y, before = np.empty_like(residual), np.empty_like(residual)
    forward(problem, x, w, y, bias.ctypes.data, residual.ctypes.data, activation="leaky_relu", slope=0.2, scale=0.5)
    assert np.abs(y - (residual + 0.5 * np.where(sums > 0, sums, 0.2 * sums))).max() < 1e-12
    forward(problem, x, w, y, bias.ctypes.data, 0, activation="snake", alpha=alpha.ctypes.data, beta=beta.ctypes.data,
            before=before.ctypes.data)
    assert np.abs(before - sums).max() < 1e-12
    assert np.abs(y - (sums + np.sin(alpha[:, None] * sums) ** 2 / beta[:, None])).max() < 1e-12


def test_an_empty_batch():
    problem = (True, 0, 3, 4, 5, 4, 2, 1, 1, 0, 1, 1)
    dw, db = np.ones((3, 4, 4)), np.ones(4)
    _core.conv_forward(problem, "f64", 0, dw.ctypes.data, 0, 0, 0, 0, 0, -1, 0, "fp32")
    _core.conv_backward(problem, "f64", 0, 0, 0, 0, dw.ctypes.data, db.ctypes.data, 0, 0, -1, 0, "fp32")
    assert (dw == 0).all() and (db == 0).all()


def test_lengths_and_workspace():
    assert _core.output_length((True, 1, 1, 1, 10, 8, 4, 2, 2, 0, 1, 1)) == 40
    assert _core.output_length((False, 1, 1, 1, 40, 8, 4, 2, 2, 0, 1, 1)) == 10
    assert _core.workspace_bytes(CASES[0], "f32", "wgrad", "tf32", -1) == 0


@pytest.mark.parametrize("change, error, text", [
    ({6: 0}, pp.ShapeError, "stride >= 1"),
    ({11: 2}, pp.ShapeError, "C_in=3"),
    ({9: 5}, pp.ShapeError, "output_padding"),
    ({4: 0}, pp.ShapeError, "L_in=0"),
    ({1: -1}, pp.ShapeError, "N=-1"),
])
def test_numbers_that_do_not_fit(change, error, text):
    numbers = list(CASES[0])
    for position, value in change.items():
        numbers[position] = value
    with pytest.raises(error, match=text):
        _core.output_length(tuple(numbers))


def test_bad_arguments_are_named():
    x, w, y = random_case(CASES[0])
    good = [CASES[0], "f64", x.ctypes.data, w.ctypes.data, 0, 0, y.ctypes.data, 0, 0, -1, 0, "fp32"]
    for position, value, error, text in [(1, "f31", pp.DTypeError, "f32, f64"), (2, 0, pp.Error, "address of x, got 0"),
                                         (6, y.ctypes.data + 4, pp.Error, "multiple of 8"), (11, "fast", pp.Error, "fast"),
                                         (1, "i64", pp.DTypeError, "i64")]:
        bad = list(good)
        bad[position] = value
        with pytest.raises(error, match=text):
            _core.conv_forward(*bad)
    with pytest.raises(pp.Error, match="conv_backward: expected the address of w, got 0"):
        _core.conv_backward(CASES[0], "f64", 0, 0, y.ctypes.data, x.ctypes.data, 0, 0, 0, 0, -1, 0, "fp32")
    with pytest.raises(pp.Error, match="sideways"):
        _core.workspace_bytes(CASES[0], "f32", "sideways", "fp32", -1)
