#!/usr/bin/env python3
"""polyphase.torch's functions: values, gradients of every order, fused forms, operators, errors."""

import itertools
import logging
import unittest

try:
    import torch
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"PyTorch is not installed: {error}") from None
from torch.nn import functional as F

import cases
import polyphase
import polyphase.torch as pt

try:
    from torch.testing._internal.common_methods_invocations import op_db
    NO_OP_DB = ""
except Exception as error:  # torch's own tests need packages that torch does not
    NO_OP_DB = f"torch's operator samples do not load: {error}"

HAS_OPERATORS = hasattr(torch.library, "register_fake")
NO_OPERATORS = f"torch {torch.__version__} has no torch.library.register_fake; operators need torch 2.4"
HAS_FUNC = hasattr(torch, "func")
NO_FUNC = f"torch {torch.__version__} has no torch.func"
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

# K, S, P, OP, D, G: strides above and below the kernel, output padding past the stride, depthwise.
TRANSPOSED = [(3, 1, 0, 0, 1, 1), (4, 2, 1, 0, 1, 1), (5, 3, 2, 1, 2, 2), (2, 4, 0, 3, 1, 1), (3, 2, 1, 2, 3, 1), (4, 3, 1, 0, 1, 6)]
PLAIN = [(3, 1, 1, 1, 1), (4, 2, 1, 1, 1), (5, 3, 2, 2, 2), (2, 4, 0, 1, 1), (3, 2, 4, 3, 6)]  # K, S, P, D, G


def random(*shape, dtype=torch.float64, grad=False, seed=0):
    made = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return made.to(dtype).requires_grad_(grad)


def layers(dtype=torch.float64, grad=False):
    """(ours, torch's, x, w, b, the other arguments)."""
    for K, S, P, OP, D, G in TRANSPOSED:
        x, w, b = random(2, 6, 7, dtype=dtype, grad=grad), random(6, 12 // G, K, dtype=dtype, grad=grad), random(12, dtype=dtype, grad=grad)
        yield pt.conv_transpose1d, F.conv_transpose1d, x, w, b, (S, P, OP, G, D)
    for K, S, P, D, G in PLAIN:
        x, w, b = random(2, 6, 19, dtype=dtype, grad=grad), random(12, 6 // G, K, dtype=dtype, grad=grad), random(12, dtype=dtype, grad=grad)
        yield pt.conv1d, F.conv1d, x, w, b, (S, P, D, G)


class Values(unittest.TestCase):
    def check(self, ours, theirs, x, w, b, *numbers):
        y = ours(x, w, b, *numbers)
        wide = [None if t is None else t.detach().double() for t in (x, w, b)]
        expected = theirs(*wide, *numbers)
        size = theirs(*(None if t is None else t.abs() for t in wide), *numbers)
        self.assertEqual((y.shape, y.dtype, y.is_contiguous()), (expected.shape, x.dtype, True))
        distance = (y.double() - expected).abs()
        self.assertTrue(bool((distance <= cases.bound(torch, expected, size, w.numel() / 2, x.dtype)).all()), f"{distance.max()}")
        return y

    def test_every_dtype(self):
        for dtype in DTYPES:
            for ours, theirs, x, w, b, numbers in layers(dtype):
                with self.subTest(dtype=dtype, theirs=theirs.__name__, numbers=numbers):
                    self.check(ours, theirs, x, w, b, *numbers)
                    self.check(ours, theirs, x, w, None, *numbers)

    def test_layouts(self):
        """Strides of any kind, views that torch negates later, one-element sequences."""
        x, w = random(2, 6, 9), random(6, 4, 3)
        expected = F.conv_transpose1d(x, w, None, 2)
        views = {"transposed": x.transpose(1, 2).contiguous().transpose(1, 2), "sliced": torch.cat([x, x], 2)[..., :9],
                 "every second": torch.stack([x, x], 3)[..., 0], "samples last": x.permute(1, 2, 0).contiguous().permute(2, 0, 1)}
        if hasattr(torch, "_neg_view"):
            views["negated"] = torch._neg_view(-x)
        for name, view in views.items():
            with self.subTest(name):
                self.assertTrue(torch.equal(pt.conv_transpose1d(view, w, None, 2), pt.conv_transpose1d(x, w, None, 2)))
        self.assertTrue(torch.allclose(pt.conv_transpose1d(x, w.transpose(0, 2).contiguous().transpose(0, 2), None, (2,)), expected))
        self.assertTrue(torch.allclose(pt.conv_transpose1d(x.expand(2, 6, 9), w, None, [2]), expected))

    def test_unbatched_and_empty(self):
        x, w = random(6, 9), random(6, 4, 3)
        self.assertTrue(torch.equal(pt.conv_transpose1d(x, w), pt.conv_transpose1d(x[None], w)[0]))
        empty, weight, bias = torch.empty(0, 6, 9, requires_grad=True), torch.randn(6, 4, 3, requires_grad=True), torch.randn(4, requires_grad=True)
        y = pt.conv_transpose1d(empty, weight, bias, 2)
        self.assertEqual(y.shape, (0, 4, 19))
        y.sum().backward()
        self.assertEqual((empty.grad.shape, weight.grad.abs().sum(), bias.grad.abs().sum()), (empty.shape, 0, 0))

    def test_padding(self):
        x, w = random(2, 3, 11), random(4, 3, 4)
        for padding in ("same", "valid"):
            self.assertTrue(torch.allclose(pt.conv1d(x, w, None, 1, padding, 2), F.conv1d(x, w, None, 1, padding, 2)))
        self.assertTrue(torch.allclose(pt.conv1d(x, w, None, 2, (3, 1)), F.conv1d(F.pad(x, (3, 1)), w, None, 2)))
        cut = F.conv_transpose1d(x, w.transpose(0, 1), None, 2)[..., 1:-2]
        self.assertTrue(torch.allclose(pt.conv_transpose1d(x, w.transpose(0, 1), None, 2, (1, 2)), cut))

    @unittest.skipIf(NO_OP_DB, NO_OP_DB)
    def test_samples_of_torch(self):
        """Every sample that torch tests its own functions with, in every dtype that polyphase has."""
        for name, ours, theirs in (("conv_transpose1d", pt.conv_transpose1d, F.conv_transpose1d), ("conv1d", pt.conv1d, F.conv1d)):
            op = next(op for op in op_db if op.name == f"nn.functional.{name}")
            for dtype in DTYPES:
                for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
                    with self.subTest(name=name, dtype=dtype, sample=sample):
                        x, (w, *rest) = sample.input, sample.args
                        wide = [t.double() if torch.is_tensor(t) else t for t in (x, w, *rest)]
                        y, expected = ours(x, w, *rest, **sample.kwargs), theirs(*wide, **sample.kwargs)
                        size = theirs(*(t.abs() if torch.is_tensor(t) else t for t in wide), **sample.kwargs)
                        limit = cases.bound(torch, expected, size, w.numel(), dtype)
                        self.assertTrue(y.shape == expected.shape and bool(((y.double() - expected).abs() <= limit).all()))


class Gradients(unittest.TestCase):
    def test_first_and_second(self):
        for ours, theirs, x, w, b, numbers in layers(grad=True):
            with self.subTest(theirs=theirs.__name__, numbers=numbers):
                call = lambda *tensors: ours(*tensors, *numbers)
                self.assertTrue(torch.autograd.gradcheck(call, (x, w, b)))
                self.assertTrue(torch.autograd.gradgradcheck(call, (x, w, b)))

    def test_forward_mode(self):
        if torch.__version__ < "2":
            self.skipTest(f"torch {torch.__version__}: forward mode is tested from 2.0 on")
        for ours, theirs, x, w, b, numbers in layers(grad=True):
            call = lambda *tensors: ours(*tensors, *numbers)
            self.assertTrue(torch.autograd.gradcheck(call, (x, w, b), check_forward_ad=True, check_backward_ad=False,
                                                     check_batched_forward_grad=False))

    def test_only_what_is_needed(self):
        for ours, theirs, x, w, b, numbers in layers():
            for needs in itertools.product((False, True), repeat=3):
                if not any(needs):
                    continue
                mine = [t.clone().requires_grad_(need) for t, need in zip((x, w, b), needs)]
                other = [t.clone().requires_grad_(need) for t, need in zip((x, w, b), needs)]
                ours(*mine, *numbers).square().sum().backward()
                theirs(*other, *numbers).square().sum().backward()
                for a, e in zip(mine, other):
                    self.assertEqual(a.grad is None, e.grad is None)
                    self.assertTrue(a.grad is None or torch.allclose(a.grad, e.grad))

    def test_same_bits_every_time(self):
        x, w = random(4, 16, 300, dtype=torch.float32, grad=True), random(16, 8, 8, dtype=torch.float32, grad=True)
        torch.use_deterministic_algorithms(True)
        try:
            runs = [torch.autograd.grad(pt.conv_transpose1d(x, w, None, 4, 2).sin().sum(), (x, w)) for _ in range(3)]
        finally:
            torch.use_deterministic_algorithms(False)
        for run in runs[1:]:
            self.assertTrue(all(torch.equal(a, e) for a, e in zip(run, runs[0])))

    def test_version_counter(self):
        """What is saved for the backward pass and then overwritten is an error, not a wrong gradient."""
        x, w = random(1, 2, 5, grad=True), random(2, 2, 3, grad=True)
        y = pt.conv_transpose1d(x, w)
        with torch.no_grad():
            w.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    @unittest.skipUnless(HAS_FUNC, NO_FUNC)
    def test_func(self):
        for ours, theirs, x, w, b, numbers in layers():
            with self.subTest(theirs=theirs.__name__, numbers=numbers):
                loss = lambda f: lambda x, w, b: f(x, w, b, *numbers).square().sum()
                for argument in range(3):
                    a, e = (torch.func.grad(loss(f), argument)(x, w, b) for f in (ours, theirs))
                    self.assertTrue(torch.allclose(a, e))
                tangents = tuple(random(*t.shape, seed=7) for t in (x, w, b))
                a, e = (torch.func.jvp(lambda *t: f(*t, *numbers), (x, w, b), tangents)[1] for f in (ours, theirs))
                self.assertTrue(torch.allclose(a, e))
                a, e = (torch.func.hessian(loss(f), 1)(x, w, b) for f in (ours, theirs))
                self.assertTrue(torch.allclose(a, e))

    @unittest.skipUnless(HAS_FUNC, NO_FUNC)
    def test_vmap(self):
        """Any of the tensors is mapped, by the functions and by the operators; also gradients of each sample."""
        for ours, theirs, x, w, b, numbers in layers():
            many = [torch.stack([t, 2 * t, t - 1], dim) for t, dim in ((x, 1), (w, 0), (b, 1))]
            forms = [ours]
            if HAS_OPERATORS:
                operator = getattr(torch.ops.polyphase, ours.__name__)
                forms.append(lambda x, w, b, *n: operator(x, w, b, *n))
            for dims in itertools.product((1, None), (0, None), (1, None)):
                if dims == (None, None, None):
                    continue
                arguments = [m if dim is not None else t for m, dim, t in zip(many, dims, (x, w, b))]
                expected = torch.func.vmap(lambda *t: theirs(*t, *numbers), dims)(*arguments)
                for form in forms:
                    got = torch.func.vmap(lambda *t: form(*t, *numbers), dims)(*arguments)
                    self.assertTrue(torch.allclose(got, expected), f"{theirs.__name__} {numbers} {dims}")
            loss = lambda f: lambda w, b, x: f(x[None], w, b, *numbers).square().sum()
            got, expected = (torch.func.vmap(torch.func.grad(loss(f), (0, 1)), (None, None, 0))(w, b, x) for f in (ours, theirs))
            self.assertTrue(all(torch.allclose(a, e) for a, e in zip(got, expected)))


class Fused(unittest.TestCase):
    def settings(self):
        for activation, more in (("relu", {}), ("leaky_relu", {"slope": 0.2}), ("leaky_relu", {"slope": -0.5}), ("tanh", {}),
                                 ("snake", {"beta": False}), ("snake", {"beta": True}), ("none", {})):
            for residual, scale in ((False, 1), (True, 1), (True, -0.7)):
                if activation != "none" or residual:
                    yield activation, more, residual, scale

    def expected(self, y, activation, slope, alpha, beta, residual, scale):
        if activation == "snake":
            a, b = alpha[:, None], (alpha if beta is None else beta)[:, None]
            y = y + torch.sin(a * y) ** 2 / b
        else:
            y = {"relu": torch.relu, "leaky_relu": lambda y: F.leaky_relu(y, slope), "tanh": torch.tanh, "none": lambda y: y}[activation](y)
        return y if residual is None else residual + scale * y

    def cases(self, grad, dtype=torch.float64):
        for ours, theirs, x, w, b, numbers in itertools.islice(layers(dtype, grad), 1, None, 4):
            for activation, more, has_residual, scale in self.settings():
                y = theirs(x.detach().double(), w.detach().double(), b.detach().double(), *numbers)
                alpha = beta = None
                if activation == "snake":
                    alpha = random(12, dtype=dtype).abs().add(0.5).detach().requires_grad_(grad)
                    beta = random(12, dtype=dtype, seed=3).abs().add(0.5).detach().requires_grad_(grad) if more["beta"] else None
                residual = random(*y.shape, dtype=dtype, grad=grad) if has_residual else None
                yield ours, theirs, (x, w, b, alpha, beta, residual), numbers, activation, more.get("slope", 0.01), scale

    def test_values_and_gradients(self):
        for ours, theirs, tensors, numbers, activation, slope, scale in self.cases(True):
            with self.subTest(theirs=theirs.__name__, activation=activation, slope=slope, residual=tensors[5] is not None, scale=scale):
                def call(x, w, b, alpha, beta, residual):
                    return ours(x, w, b, *numbers, activation=activation, slope=slope, alpha=alpha, beta=beta, residual=residual, scale=scale)
                with torch.no_grad():
                    y = call(*tensors)
                x, w, b, *rest = tensors
                self.assertTrue(torch.allclose(y, self.expected(theirs(x, w, b, *numbers), activation, slope, *rest, scale)))
                self.assertTrue(torch.equal(call(*tensors), y))
                self.assertTrue(torch.autograd.gradcheck(call, tensors))
                self.assertTrue(torch.autograd.gradgradcheck(call, tensors))

    def test_16_bit_gradients(self):
        """As good as the gradients in f32 of the rounded operands, but for roundings of the results."""
        # Before torch 2 its activations have no f16 on the CPU.
        for dtype in (torch.bfloat16,) if torch.__version__ < "2" else (torch.float16, torch.bfloat16):
            for ours, theirs, tensors, numbers, activation, slope, scale in self.cases(True, dtype):
                def gradients(call, tensors):
                    y = call(*tensors)
                    return torch.autograd.grad(y, [t for t in tensors if t is not None], torch.ones_like(y))
                fused = lambda x, w, b, alpha, beta, residual: ours(x, w, b, *numbers, activation=activation, slope=slope, alpha=alpha,
                                                                    beta=beta, residual=residual, scale=scale)
                wide = [None if t is None else t.detach().double().requires_grad_() for t in tensors]
                steps = lambda x, w, b, *rest: self.expected(theirs(x, w, b, *numbers), activation, slope, *rest, scale)
                for got, expected in zip(gradients(fused, tensors), gradients(steps, wide)):
                    self.assertEqual(got.dtype, dtype)
                    limit = 16 * torch.finfo(dtype).eps * expected.abs().max()
                    self.assertLessEqual((got.double() - expected).abs().max(), limit, f"{activation} {slope} {scale} {dtype}")

    @unittest.skipUnless(HAS_FUNC, NO_FUNC)
    def test_vmap(self):
        x, w, residual = random(3, 2, 6, 9), random(6, 4, 3), random(2, 4, 19)
        call = lambda x: pt.conv_transpose1d(x, w, None, 2, activation="tanh", residual=residual)
        self.assertTrue(torch.allclose(torch.func.vmap(call)(x), torch.stack([call(part) for part in x])))


class Antialiased(unittest.TestCase):
    def tensors(self, dtype=torch.float64, grad=True, length=9):
        taps = torch.kaiser_window(12, periodic=False, dtype=torch.float64) * torch.sinc(0.5 * (torch.arange(-6, 6) + 0.5))
        taps = (taps / taps.sum()).to(dtype)
        alpha, beta = (random(3, dtype=dtype, seed=seed).abs().add(0.5).detach().requires_grad_(grad) for seed in (1, 2))
        return random(2, 3, length, dtype=dtype, grad=grad), alpha, beta, taps.reshape(1, 1, 12), taps.flip(0)

    def expected(self, x, alpha, beta, up, down):
        """BigVGAN's Activation1d in torch's functions."""
        up, down = (taps.reshape(1, 1, 12).expand(3, 1, 12) for taps in (up, down))
        y = 2 * F.conv_transpose1d(F.pad(x, (5, 5), "replicate"), up, stride=2, groups=3)[..., 15:-15]
        y = y + torch.sin(alpha[:, None] * y) ** 2 / beta[:, None]
        return F.conv1d(F.pad(y, (5, 6), "replicate"), down, stride=2, groups=3)

    def test_values_and_gradients(self):
        for length in (1, 2, 9):
            tensors = self.tensors(length=length)
            y = pt.antialias_snake(*tensors)
            self.assertTrue(torch.allclose(y, self.expected(*tensors)))
            self.assertTrue(torch.equal(pt.antialias_snake(tensors[0][1], *tensors[1:]), y[1]))
            call = lambda x, alpha, beta: pt.antialias_snake(x, alpha, beta, *tensors[3:])
            self.assertTrue(torch.autograd.gradcheck(call, tensors[:3]))
            self.assertTrue(torch.autograd.gradgradcheck(call, tensors[:3]))

    def test_16_bit_and_autocast(self):
        for dtype in (torch.bfloat16, torch.float16):
            tensors = self.tensors(dtype)
            wide = [t.detach().double().requires_grad_(t.requires_grad) for t in tensors]
            pairs = zip(*(torch.autograd.grad(f(*t).sum(), t[:3]) for f, t in ((pt.antialias_snake, tensors), (self.expected, wide))))
            for got, expected in pairs:
                self.assertLessEqual((got.double() - expected).abs().max(), 4 * torch.finfo(dtype).eps * expected.abs().max())
        with torch.autocast("cpu", torch.bfloat16):
            self.assertEqual(pt.antialias_snake(*self.tensors(torch.float32)).dtype, torch.bfloat16)

    def test_no_samples(self):
        x, *others = self.tensors(torch.float32)
        grads = torch.autograd.grad(pt.antialias_snake(x[:0], *others).sum(), (x, *others[:2]))
        self.assertEqual([float(g.abs().sum()) for g in grads], [0, 0, 0])

    def test_bad_input(self):
        x, alpha, beta, up, down = self.tensors(grad=False)
        for error, words, arguments in ((polyphase.ShapeError, "alpha \\(C=3\\), got \\(2,\\)", (x, alpha[:2], beta, up, down)),
                                        (polyphase.ShapeError, "filter down \\(12\\)", (x, alpha, beta, up, down[:6])),
                                        (polyphase.DTypeError, "float64 and torch.float32", (x, alpha, beta.float(), up, down)),
                                        (polyphase.Error, "without gradients, got up", (x, alpha, beta, up.clone().requires_grad_(), down))):
            with self.assertRaisesRegex(error, words):
                pt.antialias_snake(*arguments)

    @unittest.skipUnless(HAS_OPERATORS, NO_OPERATORS)
    def test_operator(self):
        tensors = self.tensors()
        torch.library.opcheck(torch.ops.polyphase.antialias_snake, tensors)
        x, *others = self.tensors(torch.float32)
        compiled = torch.compile(pt.antialias_snake, fullgraph=True, dynamic=True, backend="aot_eager")
        grads = [torch.autograd.grad(f(x, *others).sin().sum(), (x, *others[:2])) for f in (compiled, pt.antialias_snake)]
        self.assertTrue(all(torch.allclose(a, e) for a, e in zip(*grads)))


@unittest.skipUnless(HAS_OPERATORS, NO_OPERATORS)
class Operators(unittest.TestCase):
    def test_opcheck(self):
        for grad in (False, True):
            for ours, _, x, w, b, numbers in layers(grad=grad):
                op = getattr(torch.ops.polyphase, ours.__name__)
                for arguments in ((x, w, b, *numbers), (x, w), (x.transpose(1, 2).detach().contiguous().transpose(1, 2), w, None, *numbers)):
                    if len(arguments) > 2 or w.shape[:2] in ((6, 12), (12, 6)):  # the defaults have one group
                        torch.library.opcheck(op, arguments)

    def test_fakes_have_the_strides_of_results(self):
        """Also for inputs that lie densely in another order, whose strides a fake must not copy; opcheck does not look."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        mode = FakeTensorMode()
        ops = torch.ops.polyphase
        for ours, _, x, w, b, numbers in layers():
            op = getattr(ops, ours.__name__)
            transposed = ours is pt.conv_transpose1d
            stride, padding, *rest = numbers
            layer = (transposed, stride, (padding, padding), rest[0] if transposed else 0, numbers[-1 if transposed else -2],
                     numbers[-2 if transposed else -1], "fp32")
            turned = lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)
            dy = op(x, w, b, *numbers)
            for x, dy in ((x, dy), (turned(x), turned(dy))):
                for call, arguments in ((op, (x, w, b, *numbers)), (ops.conv_input_grad, (dy, w, x.shape[2], *layer)),
                                        (ops.conv_weight_grad, (x, dy, w.shape[2], True, *layer)),
                                        (ops.conv_activated, (x, w, b, None, None, dy, "relu", 0.0, 1.0, True, *layer))):
                    real = call(*arguments)
                    with mode:
                        fake = call(*(mode.from_tensor(a) if torch.is_tensor(a) else a for a in arguments))
                    for a, e in zip(fake if isinstance(fake, tuple) else (fake,), real if isinstance(real, tuple) else (real,)):
                        self.assertEqual((a.shape, a.stride(), a.dtype), (e.shape, e.stride(), e.dtype), str(call))

    def test_opcheck_of_gradients(self):
        x, w, dy = random(2, 6, 7, grad=True), random(6, 4, 5, grad=True), random(2, 4, 23, grad=True)
        layer = (True, 3, (0, 0), 0, 1, 1, "fp32")
        torch.library.opcheck(torch.ops.polyphase.conv_input_grad, (dy, w, 7, *layer))
        for with_bias in (False, True):
            torch.library.opcheck(torch.ops.polyphase.conv_weight_grad, (x, dy, 5, with_bias, *layer))

    def test_opcheck_of_fused(self):
        x, w, b = random(2, 6, 7, grad=True), random(6, 4, 5, grad=True), random(4, grad=True)
        alpha, residual = random(4).abs().add(1).requires_grad_(), random(2, 4, 23, grad=True)
        layer = (True, 3, (0, 0), 0, 1, 1, "fp32")
        op = torch.ops.polyphase.conv_activated
        torch.library.opcheck(op, (x, w, b, alpha, None, residual, "snake", 0.0, 0.5, True, *layer))
        torch.library.opcheck(op, (x, w, b, None, None, None, "leaky_relu", 0.1, 1.0, False, *layer))
        with self.assertRaisesRegex(RuntimeError, "expected keep=True"):
            op(x, w, b, None, None, residual, "relu", 0.0, 1.0, False, *layer)[0].sum().backward()

    def test_gradients_of_operators(self):
        for ours, _, x, w, b, numbers in layers(grad=True):
            op = getattr(torch.ops.polyphase, ours.__name__)
            self.assertTrue(torch.autograd.gradcheck(lambda *t: op(*t, *numbers), (x, w, b)))
            self.assertTrue(torch.autograd.gradgradcheck(lambda *t: op(*t, *numbers), (x, w, b)))

    def test_forward_mode_is_not_silent(self):
        x, w = random(1, 2, 5), random(2, 2, 3)
        with self.assertRaisesRegex(NotImplementedError, "conv_transpose1d: expected no forward-mode"):
            torch.func.jvp(lambda x: torch.ops.polyphase.conv_transpose1d(x, w), (x,), (x,))


class BadInput(unittest.TestCase):
    def check(self, error, words, call):
        with self.assertRaises(error) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_messages(self):
        x, w, b = torch.zeros(2, 6, 7), torch.zeros(6, 4, 3), torch.zeros(4)
        shape, dtype = polyphase.ShapeError, polyphase.DTypeError
        T, C = pt.conv_transpose1d, pt.conv1d
        for error, words, call in (
                (shape, ["conv_transpose1d", "6 channels", "(2, 5, 7)"], lambda: T(x[:, :5], w)),
                (shape, ["conv_transpose1d", "(6, 4)"], lambda: T(x, w[..., 0])),
                (shape, ["conv_transpose1d", "(N, C_in, L_in)", "(6,)"], lambda: T(x[0, :, 0], w)),
                (shape, ["conv_transpose1d", "bias (C_out=4)", "(5,)"], lambda: T(x, w, torch.zeros(5))),
                (shape, ["conv_transpose1d", "output_padding", "got 2"], lambda: T(x, w, None, 2, 0, 2)),
                (shape, ["conv_transpose1d", "stride", "0"], lambda: T(x, w, None, 0)),
                (shape, ["conv_transpose1d", "padding >= 0", "-1"], lambda: T(x, w, None, 1, -1)),
                (shape, ["conv_transpose1d", "L_out=-1"], lambda: T(x, w, None, 1, 5)),
                (shape, ["conv1d", "L_in=7", "L_out=0"], lambda: C(x, torch.zeros(4, 6, 8))),
                (shape, ["conv1d", "groups=4"], lambda: C(torch.zeros(2, 24, 7), w, None, 1, 0, 1, 4)),
                (shape, ["conv1d", "same", "stride 2"], lambda: C(x, torch.zeros(4, 6, 3), None, 2, "same")),
                (shape, ["conv1d", "stride", "(1, 2)"], lambda: C(x, torch.zeros(4, 6, 3), None, (1, 2))),
                (dtype, ["conv_transpose1d", "torch.float32", "torch.float64"], lambda: T(x, w.double())),
                (dtype, ["conv_transpose1d", "torch.complex64"], lambda: T(x.to(torch.complex64), w)),
                (dtype, ["conv_transpose1d", "torch.int64"], lambda: T(x.long(), w.long())),
                (polyphase.Error, ["conv_transpose1d", "relu, leaky_relu", "'gelu'"], lambda: T(x, w, activation="gelu")),
                (polyphase.Error, ["alpha", "snake"], lambda: T(x, w, alpha=b)),
                (polyphase.Error, ["scale=2"], lambda: T(x, w, scale=2)),
                (shape, ["alpha (C_out=4)", "(6,)"], lambda: T(x, w, activation="snake", alpha=torch.zeros(6))),
                (shape, ["residual", "(2, 4, 9)", "(2, 4, 7)"], lambda: T(x, w, residual=torch.zeros(2, 4, 7))),
                (ValueError, ["precision", "ieee, fp32, tf32", "'high'"], lambda: T(x, w, precision="high"))):
            with self.subTest(words=words):
                self.check(error, words, call)
        self.assertTrue(issubclass(shape, ValueError) and issubclass(dtype, TypeError))
        self.assertTrue(torch.equal(T(x, w, b), torch.zeros(2, 4, 9)))  # and it works afterwards

    @unittest.skipUnless(HAS_OPERATORS, NO_OPERATORS)
    def test_fakes_reject_the_same(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        logging.disable(logging.CRITICAL)  # torch logs what a fake raises
        self.addCleanup(logging.disable, logging.NOTSET)
        with FakeTensorMode():
            self.check(polyphase.ShapeError, ["6 channels"], lambda: pt.conv_transpose1d(torch.zeros(2, 5, 7), torch.zeros(6, 4, 3)))
            self.check(polyphase.DTypeError, ["float64"], lambda: pt.conv1d(torch.zeros(2, 6, 7), torch.zeros(4, 6, 3).double()))


if __name__ == "__main__":
    cases.main()
