#!/usr/bin/env python3
"""polyphase.jax against JAX's own convolutions: values, gradients, jit, vmap, errors."""

import itertools
import unittest

try:
    import jax
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"JAX is not installed: {error}") from None
from polyphase import _core

if not hasattr(_core, "_xla_handlers"):
    raise unittest.SkipTest("this build of polyphase has no XLA handlers: jax was not there when it was made")

import jax.numpy as jnp
import numpy as np
from jax import lax

import cases
import polyphase
import polyphase.jax as pj

jax.config.update("jax_enable_x64", True)
DIMENSIONS = ("NCH", "OIH", "NCH")

# K, S, P, OP, D, G
TRANSPOSED = [(3, 1, 0, 0, 1, 1), (4, 2, 1, 0, 1, 1), (5, 3, 2, 1, 2, 2), (2, 4, 0, 3, 1, 1), (3, 2, 1, 2, 3, 1), (4, 3, 1, 0, 1, 6)]
PLAIN = [(3, 1, 1, 1, 1), (4, 2, 1, 1, 1), (5, 3, 2, 2, 2), (2, 4, 0, 1, 1), (3, 2, 4, 3, 6)]  # K, S, P, D, G


def random(*shape, dtype=jnp.float64):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


def jax_conv_transpose1d(x, w, b, stride, padding, output_padding, groups, dilation):
    """The convolution of x spread by the stride with the taps reversed."""
    K = w.shape[2]
    taps = w[..., ::-1].reshape(groups, w.shape[0] // groups, w.shape[1], K).swapaxes(1, 2).reshape(-1, w.shape[0] // groups, K)
    reach = dilation * (K - 1)
    y = lax.conv_general_dilated(x, taps, (1,), [(reach - padding, reach - padding + output_padding)], (stride,), (dilation,), DIMENSIONS,
                                 feature_group_count=groups)
    return y if b is None else y + b[:, None]


def jax_conv1d(x, w, b, stride, padding, dilation, groups):
    y = lax.conv_general_dilated(x, w, (stride,), [(padding, padding)], (1,), (dilation,), DIMENSIONS, feature_group_count=groups)
    return y if b is None else y + b[:, None]


def layers(dtype=jnp.float64):
    """(ours, JAX's, (x, w, b)); both take the arrays alone."""
    for K, S, P, OP, D, G in TRANSPOSED:
        named = {"stride": S, "padding": P, "output_padding": OP, "groups": G, "dilation": D}
        yield (lambda *a, n=named: pj.conv_transpose1d(*a, **n), lambda *a, n=named: jax_conv_transpose1d(*a, **n),
               (random(2, 6, 7, dtype=dtype), random(6, 12 // G, K, dtype=dtype), random(12, dtype=dtype)))
    for K, S, P, D, G in PLAIN:
        named = {"stride": S, "padding": P, "groups": G, "dilation": D}
        yield (lambda *a, n=named: pj.conv1d(*a, **n), lambda *a, n=named: jax_conv1d(*a, **n),
               (random(2, 6, 19, dtype=dtype), random(12, 6 // G, K, dtype=dtype), random(12, dtype=dtype)))


class Convolutions(unittest.TestCase):
    def near(self, got, expected, of=1e-12):
        for a, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            self.assertEqual(a.shape, e.shape)
            self.assertLessEqual(float(jnp.abs(a - e).max()), of * (1 + float(jnp.abs(e).max())))

    def test_values(self):
        for dtype, of in ((jnp.float64, 1e-12), (jnp.float32, 2e-6), (jnp.float16, 2e-3), (jnp.bfloat16, 2e-2)):
            for ours, theirs, arrays in layers(dtype):
                wide = [a.astype(jnp.float64) for a in arrays]
                y = ours(*arrays)
                self.assertEqual(y.dtype, dtype)
                self.near(y.astype(jnp.float64), theirs(*wide), of)
                self.near(jax.jit(ours)(*arrays), y, 0)
                self.near(ours(*arrays[:2], None).astype(jnp.float64), theirs(*wide[:2], None), of)

    def test_padding(self):
        x, w = random(2, 3, 11), random(4, 3, 4)
        self.near(pj.conv1d(x, w, padding="same"), lax.conv_general_dilated(x, w, (1,), [(1, 2)], dimension_numbers=DIMENSIONS))
        self.near(pj.conv1d(x, w, padding=(2, 0)), lax.conv_general_dilated(x, w, (1,), [(2, 0)], dimension_numbers=DIMENSIONS))

    def test_gradients(self):
        for ours, theirs, arrays in layers():
            loss = lambda f: lambda *a: jnp.sin(f(*a)).sum()
            self.near(jax.grad(loss(ours), (0, 1, 2))(*arrays), jax.grad(loss(theirs), (0, 1, 2))(*arrays))
            self.near(jax.jit(jax.grad(loss(ours), 1))(*arrays[:2], None), jax.grad(loss(theirs), 1)(*arrays[:2], None))

    def test_second_gradients(self):
        for ours, theirs, arrays in itertools.islice(layers(), 2, None, 3):
            def twice(f):
                def inner(*a):
                    return sum(jnp.sin(g).sum() for g in jax.grad(lambda *a: jnp.sin(f(*a)).sum(), (0, 1, 2))(*a))
                return jax.jit(jax.grad(inner, (0, 1, 2)))(*arrays)
            self.near(twice(ours), twice(theirs), 1e-11)

    def test_vmap(self):
        for ours, theirs, (x, w, b) in itertools.islice(layers(), 1, None, 2):
            many = [jnp.stack([a, 2 * a, a - 1], axis) for a, axis in ((x, 1), (w, 0), (b, 1))]
            for axes in itertools.product((1, None), (0, None), (1, None)):
                if axes == (None, None, None):
                    continue
                arrays = [m if axis is not None else a for m, axis, a in zip(many, axes, (x, w, b))]
                self.near(jax.vmap(ours, axes)(*arrays), jax.vmap(theirs, axes)(*arrays))
            loss = lambda f: lambda w, b, x: jnp.sin(f(x[None], w, b)).sum()
            each = [jax.jit(jax.vmap(jax.grad(loss(f), (0, 1)), (None, None, 0)))(w, b, x) for f in (ours, theirs)]
            self.near(*each)
            self.near(jax.vmap(jax.vmap(ours, (0, None, None)), (0, None, None))(jnp.stack([many[0], many[0]]).swapaxes(1, 2), w, b),
                      jax.vmap(jax.vmap(theirs, (0, None, None)), (0, None, None))(jnp.stack([many[0], many[0]]).swapaxes(1, 2), w, b))

    def test_no_samples(self):
        y = pj.conv_transpose1d(jnp.zeros((0, 6, 7)), random(6, 4, 3), stride=2)
        self.assertEqual(y.shape, (0, 4, 15))
        dw = jax.grad(lambda w: pj.conv_transpose1d(jnp.zeros((0, 6, 7)), w).sum())(random(6, 4, 3))
        self.assertEqual(float(jnp.abs(dw).max()), 0)

    def test_bad_input(self):
        x, w = jnp.zeros((2, 6, 7)), jnp.zeros((6, 4, 3))
        for error, words, call in ((polyphase.ShapeError, "6 channels", lambda: pj.conv_transpose1d(x[:, :5], w)),
                                   (polyphase.ShapeError, "output_padding", lambda: pj.conv_transpose1d(x, w, output_padding=2)),
                                   (polyphase.ShapeError, "L_out=0", lambda: pj.conv1d(x, jnp.zeros((4, 6, 8)))),
                                   (polyphase.DTypeError, "float64 and float32", lambda: pj.conv_transpose1d(x, w.astype(jnp.float32))),
                                   (polyphase.DTypeError, "int64", lambda: pj.conv_transpose1d(x.astype(int), w.astype(int))),
                                   (ValueError, "tf32, got 'high'", lambda: pj.conv_transpose1d(x, w, precision="high"))):
            with self.assertRaisesRegex(error, words):
                call()
            with self.assertRaisesRegex(error, words):
                jax.jit(call)()


if __name__ == "__main__":
    cases.main()
