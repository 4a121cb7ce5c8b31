#!/usr/bin/env python3
"""polyphase.torch's layers under what PyTorch does with layers: copies, files, autocast, compilers, export, modes, processes, threads."""

import contextlib
import copy
import io
import os
import pathlib
import pickle
import re
import sys
import threading
import unittest
from unittest import mock

try:
    import torch
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"PyTorch is not installed: {error}") from None
from torch import nn
from torch.nn import functional as F

import cases
import polyphase.torch as pt
from polyphase.torch import kernels

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
HAS_OPERATORS = hasattr(torch.library, "register_fake")
NO_OPERATORS = f"torch {torch.__version__} has no torch.library.register_fake; operators need torch 2.4"


def pairs():
    """(ours, torch's, input shape) with the same parameters."""
    for name, arguments, named, shape in (
            ("ConvTranspose1d", (6, 4, 8), {"stride": 4, "padding": 2}, (2, 6, 9)),
            ("ConvTranspose1d", (6, 6, 5), {"stride": 3, "padding": 1, "output_padding": 2, "groups": 6, "dilation": 2, "bias": False}, (2, 6, 9)),
            ("Conv1d", (6, 4, 7), {"padding": 3}, (2, 6, 20)),
            ("Conv1d", (6, 12, 4), {"padding": "same", "dilation": 3, "groups": 3}, (2, 6, 20)),
            ("Conv1d", (6, 4, 5), {"stride": 2, "padding": 2, "padding_mode": "reflect"}, (2, 6, 20))):
        torch.manual_seed(5)
        theirs = getattr(nn, name)(*arguments, **named)
        torch.manual_seed(5)
        yield getattr(pt, name)(*arguments, **named), theirs, shape


def vocoder():
    """A small generator with both layers."""
    return nn.Sequential(pt.Conv1d(8, 16, 7, padding=3), nn.LeakyReLU(0.1), pt.ConvTranspose1d(16, 8, 8, 4, 2), nn.LeakyReLU(0.1),
                         pt.Conv1d(8, 1, 7, padding=3), nn.Tanh())


class Layers(unittest.TestCase):
    def test_are_torchs(self):
        for ours, theirs, shape in pairs():
            with self.subTest(theirs):
                self.assertIsInstance(ours, type(theirs))
                self.assertEqual(str(ours), str(theirs))
                self.assertEqual(list(ours.state_dict()), list(theirs.state_dict()))
                for a, e in zip(ours.parameters(), theirs.parameters()):
                    self.assertTrue(torch.equal(a, e))  # the same random numbers
                x = torch.randn(shape)
                self.assertTrue(torch.allclose(ours(x), theirs(x), atol=1e-6))
                self.assertTrue(torch.allclose(ours(x[0]), theirs(x[0]), atol=1e-6))
                theirs.load_state_dict(ours.state_dict())
                ours.load_state_dict(theirs.state_dict())

    def test_output_size(self):
        ours, theirs, shape = next(pairs())
        x = torch.randn(shape)
        for size in ([36], [37], [38], [2, 4, 39]):
            self.assertTrue(torch.allclose(ours(x, output_size=size), theirs(x, output_size=size), atol=1e-6))
        with self.assertRaisesRegex(ValueError, "40"):
            ours(x, output_size=[40])

    def test_activated(self):
        ours, theirs, shape = next(pairs())
        x = torch.randn(shape)
        y = theirs(x)
        self.assertTrue(torch.allclose(ours.forward_activated(x, "leaky_relu", slope=0.1), F.leaky_relu(y, 0.1), atol=1e-6))
        conv, other, shape = list(pairs())[4]  # padded by reflection
        x, residual = torch.randn(shape), torch.randn(2, 4, 10)
        self.assertTrue(torch.allclose(conv.forward_activated(x, "tanh", residual=residual), residual + torch.tanh(other(x)), atol=1e-6))

    def test_dtypes_and_channels_last(self):
        for dtype in (torch.float64, torch.bfloat16, torch.float16):
            ours, theirs, shape = next(pairs())
            x = torch.randn(shape).to(dtype)
            expected = theirs.to(dtype).double()(x.double())
            self.assertEqual(ours.to(dtype)(x).dtype, dtype)
            self.assertTrue(torch.allclose(ours(x).double(), expected, atol=8 * torch.finfo(dtype).eps))
            last = x.transpose(1, 2).contiguous().transpose(1, 2)
            self.assertTrue(torch.equal(ours(last), ours(x)))


class Precision(unittest.TestCase):
    def seen(self, call):
        """The precisions that the kernels are called with."""
        found = []
        with mock.patch.multiple(kernels._core, conv_forward=mock.DEFAULT, conv_backward=mock.DEFAULT) as mocks:
            for made in mocks.values():
                made.side_effect = lambda *arguments: found.append(next(a for a in arguments[1:] if a in ("ieee", "fp32", "tf32")))
            call()
        return found

    def test_layer_and_context(self):
        x = torch.randn(2, 6, 9, requires_grad=True)
        plain, own = pt.ConvTranspose1d(6, 4, 3), pt.ConvTranspose1d(6, 4, 3, precision="ieee")
        self.assertEqual(self.seen(lambda: (plain(x), own(x))), ["fp32", "ieee"])
        with pt.precision("tf32"):
            self.assertEqual(pt.current_precision(), "tf32")
            self.assertEqual(self.seen(lambda: (plain(x), own(x))), ["tf32", "ieee"])
            y = plain(x)
            other = []
            thread = threading.Thread(target=lambda: other.append(pt.current_precision()))
            thread.start()
            thread.join()
            self.assertEqual(other, ["fp32"])
        self.assertEqual(self.seen(y.sum().backward), ["tf32"])  # of its forward pass
        self.assertEqual(pt.current_precision(), "fp32")
        self.assertIn("precision=ieee", str(own))
        with self.assertRaisesRegex(ValueError, "ieee, fp32, tf32, got 'low'"):
            pt.Conv1d(1, 1, 1, precision="low")
        with self.assertRaisesRegex(ValueError, "ieee, fp32, tf32, got 'low'"):
            with pt.precision("low"):
                pass

    @unittest.skipUnless(HAS_OPERATORS, NO_OPERATORS)
    def test_compiled(self):
        """A compiled function has the precision of its call, and is compiled again for another one."""
        layer, x, found = pt.ConvTranspose1d(6, 4, 3), torch.randn(2, 6, 9), []
        compiled = torch.compile(layer, fullgraph=True, backend=lambda graph, _: found.append(
            [node.args[-1] for node in graph.graph.nodes if "polyphase" in str(node.target)][0]) or graph.forward)
        compiled(x)
        with pt.precision("tf32"):
            compiled(x)

        @torch.compile(fullgraph=True, backend="eager")
        def inside(x):
            with pt.precision("ieee"):
                return layer(x)

        self.assertEqual(found, ["fp32", "tf32"])
        self.assertTrue(torch.equal(inside(x), layer(x)))
        self.assertEqual(pt.current_precision(), "fp32")


class Copies(unittest.TestCase):
    def test_deepcopy_pickle_and_files(self):
        x = torch.randn(2, 6, 9)
        layer = pt.ConvTranspose1d(6, 4, 3, stride=2, precision="tf32")
        y = layer(x)
        y.sum().backward()
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        load = (lambda: torch.load(file)) if torch.__version__ < "2" else (lambda: torch.load(file, weights_only=False))
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), load()):
            self.assertIs(type(other), pt.ConvTranspose1d)
            self.assertEqual(other.precision, "tf32")
            self.assertTrue(torch.equal(other(x), y))
            self.assertIsNot(other.weight, layer.weight)

    def test_averaged_model(self):
        net = vocoder()
        average = torch.optim.swa_utils.AveragedModel(net, avg_fn=lambda mean, new, _: 0.5 * mean + 0.5 * new)
        average.update_parameters(net)
        before = copy.deepcopy(net)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(1)
        average.update_parameters(net)
        for mean, old in zip(average.module.parameters(), before.parameters()):
            self.assertTrue(torch.allclose(mean, old + 0.5))
        self.assertEqual(average(torch.randn(2, 8, 10)).shape, (2, 1, 40))

    def test_training_follows_torch(self):
        """Ten steps of the same data give the same losses."""
        losses = []
        for layers in (pt, nn):
            torch.manual_seed(0)
            net = nn.Sequential(layers.Conv1d(4, 8, 5, padding=2), nn.Tanh(), layers.ConvTranspose1d(8, 2, 4, 2, 1)).double()
            optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
            x, target = torch.randn(3, 4, 20).double(), torch.randn(3, 2, 40).double()
            of_net = []
            for _ in range(10):
                optimizer.zero_grad()
                loss = F.mse_loss(net(x), target)
                loss.backward()
                optimizer.step()
                of_net.append(loss.item())
            losses.append(of_net)
        self.assertLess(max(abs(a - e) for a, e in zip(*losses)), 1e-12)
        self.assertLess(losses[0][-1], losses[0][0])


class Autocast(unittest.TestCase):
    def test_cpu_bf16(self):
        """As torch's own layer: the result is bf16, gradients are f32, f64 stays, and a backward pass inside is the same."""
        for ours, theirs, shape in pairs():
            x = torch.randn(shape)
            mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16):
                y, expected = ours(mine), theirs(other)
                fused = ours.forward_activated(x, "relu")
            self.assertEqual((y.dtype, fused.dtype), (torch.bfloat16, torch.bfloat16))
            # Both round the operands to bf16; only the sums differ.
            self.assertTrue(torch.allclose(y.float(), expected.float(), atol=2e-2, rtol=2e-2))
            y.float().square().sum().backward()
            expected.float().square().sum().backward()
            for a, e in zip((mine, *ours.parameters()), (other, *theirs.parameters())):
                self.assertEqual(a.grad.dtype, torch.float32)
                self.assertLess((a.grad - e.grad).abs().max(), 2e-2 * e.grad.abs().max())

    def test_inside_and_outside(self):
        layer = pt.Conv1d(3, 4, 5)
        x = torch.randn(2, 3, 9, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            inside = torch.autograd.grad(layer(x).sum(), x)[0]
            with torch.autocast("cpu", enabled=False):
                self.assertEqual(layer(x).dtype, torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        self.assertTrue(torch.equal(torch.autograd.grad(y.sum(), x)[0], inside))

    @unittest.skipUnless(HAS_OPERATORS, NO_OPERATORS)
    def test_operators_and_f16(self):
        x, w, alpha = torch.randn(2, 3, 9), torch.randn(3, 4, 5), torch.rand(4) + 1
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype):
                self.assertEqual(torch.ops.polyphase.conv_transpose1d(x, w).dtype, dtype)
                self.assertEqual(pt.conv_transpose1d(x, w).dtype, dtype)
                self.assertEqual(pt.conv_transpose1d(x, w, activation="snake", alpha=alpha).dtype, dtype)
                self.assertEqual(pt.conv_transpose1d(x.double(), w.double()).dtype, torch.float64)
        compiled = torch.compile(lambda x: pt.conv_transpose1d(x, w), fullgraph=True, backend="aot_eager")
        with torch.autocast("cpu", torch.bfloat16):
            self.assertTrue(torch.equal(compiled(x), pt.conv_transpose1d(x, w)))


@unittest.skipUnless(HAS_OPERATORS, NO_OPERATORS)
class Compiled(unittest.TestCase):
    def compare(self, call, net, *shapes, backend):
        torch._dynamo.reset()
        compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=backend)
        for shape in shapes:
            x = torch.randn(shape)
            mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
            y, expected = compiled(mine), call(other)
            self.assertTrue(torch.allclose(y, expected, atol=1e-6))
            grads = [torch.autograd.grad(out.square().sum(), [given, *net.parameters()]) for out, given in ((y, mine), (expected, other))]
            for a, e in zip(*grads):
                self.assertTrue(torch.allclose(a, e, atol=1e-5))
            with torch.no_grad():
                self.assertTrue(torch.allclose(compiled(x), expected, atol=1e-6))

    def test_every_layer(self):
        for ours, _, shape in pairs():
            with self.subTest(ours):
                self.compare(ours, ours, shape, (3, shape[1], shape[2] + 5), backend="aot_eager")

    def test_network(self):
        """One graph without breaks for every length, also by the default compiler where one works."""
        net = vocoder()
        counter = torch._dynamo.testing.CompileCounter()
        counted = torch.compile(net, fullgraph=True, dynamic=True, backend=counter)
        for length in (10, 11, 25):
            counted(torch.randn(2, 8, length))
        self.assertEqual(counter.frame_count, 1)
        self.compare(net, net, (2, 8, 10), (2, 8, 13), backend="inductor")

    def test_fused_and_output_size(self):
        layer = pt.ConvTranspose1d(4, 4, 4, 3)
        residual = torch.randn(2, 4, 28)
        call = lambda x: layer.forward_activated(x, "leaky_relu", slope=0.1, residual=residual[..., :3 * x.shape[2] + 1], scale=0.5)
        self.compare(call, layer, (2, 4, 9), (2, 4, 7), backend="aot_eager")
        self.compare(lambda x: layer(x, output_size=[3 * x.shape[2] + 2]), layer, (2, 4, 9), (2, 4, 7), backend="aot_eager")

    def test_vmap(self):
        layer = pt.Conv1d(4, 3, 3)
        x = torch.randn(5, 2, 4, 9)
        mapped = lambda x: torch.func.vmap(lambda part: layer(part))(x)
        compiled = torch.compile(mapped, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.allclose(compiled(x), mapped(x), atol=1e-6))

    def test_export(self):
        net, x = vocoder(), torch.randn(2, 8, 10)
        for strict in (False, True):
            length = torch.export.Dim("length", min=3, max=1000)
            program = torch.export.export(net, (x,), dynamic_shapes={"input": {2: length}}, strict=strict)
            names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
            self.assertEqual(sum("polyphase.conv" in name for name in names), 3)
            longer = torch.randn(2, 8, 21)
            self.assertTrue(torch.allclose(program.module()(longer), net(longer), atol=1e-6))
            self.assertTrue(torch.allclose(program.run_decompositions().module()(longer), net(longer), atol=1e-6))
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        self.assertTrue(torch.allclose(torch.export.load(file).module()(x), net(x), atol=1e-6))

    def test_trace_and_make_fx(self):
        from torch.fx.experimental.proxy_tensor import make_fx
        net, x = vocoder(), torch.randn(2, 8, 10)
        self.assertTrue(torch.allclose(torch.jit.trace(net, x)(x), net(x), atol=1e-6))
        for mode in ("real", "fake", "symbolic"):
            self.assertTrue(torch.allclose(make_fx(net, tracing_mode=mode, _allow_non_fake_inputs=True)(x)(x), net(x), atol=1e-6))

    def test_meta_and_fake(self):
        net = vocoder().to("meta")
        self.assertEqual(net(torch.empty(2, 8, 10, device="meta")).shape, (2, 1, 40))
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            y = vocoder()(torch.empty(2, 8, 10))
            y.sum().backward()
            self.assertEqual(y.shape, (2, 1, 40))

    def test_flop_counter_sees_the_operators(self):
        from torch.utils.flop_counter import FlopCounterMode
        with FlopCounterMode(display=False) as mode:
            vocoder()(torch.randn(2, 8, 10))
        del mode
        from torch.utils._python_dispatch import TorchDispatchMode

        class Names(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                names.append(str(function))
                return function(*args, **(kwargs or {}))

        names = []
        with Names():
            vocoder()(torch.randn(2, 8, 10))
        self.assertEqual(sum("polyphase.conv" in name for name in names), 3)


class Pages(unittest.TestCase):
    @unittest.skipUnless(PAGE.is_file(), f"{PAGE.name} is not here: this is not the source tree")
    def test_the_code_of_the_page_runs(self):
        blocks = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S) if "polyphase.torch" in block]
        self.assertGreaterEqual(len(blocks), 2)
        for block in blocks:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block, PAGE.name, "exec"), {})


class Set(torch.utils.data.Dataset):
    """Samples that a convolution computes in a worker."""

    def __init__(self):
        self.layer = pt.ConvTranspose1d(2, 2, 4, 2, 1)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with torch.no_grad():
            return self.layer(torch.full((2, 50), float(index)))


class Processes(unittest.TestCase):
    def test_data_loader(self):
        """Forked workers compute after the parent has."""
        data = Set()
        expected = torch.stack([data[i] for i in range(len(data))])
        loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork")
        self.assertTrue(torch.equal(torch.cat(list(loader)), expected))

    def test_threads(self):
        net = vocoder()
        inputs = [torch.randn(1, 8, 30 + i) for i in range(8)]
        expected, got = [net(x) for x in inputs], [None] * 8

        def work(i):
            for _ in range(5):
                got[i] = net(inputs[i])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(all(torch.equal(a, e) for a, e in zip(got, expected)))

    @unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed")
    def test_distributed_data_parallel(self):
        """Two processes over gloo have the gradients of one with both halves of the batch."""
        codes, output = cases.run_two_workers(__file__)
        self.assertEqual(codes, [0, 0], output)


def ddp_worker():
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    net = vocoder().double()
    x = torch.randn(4, 8, 10).double()
    expected = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))
    wrapped = nn.parallel.DistributedDataParallel(net)
    wrapped(x[2 * rank:2 * rank + 2]).square().mean().backward()
    for parameter, gradient in zip(net.parameters(), expected):
        assert torch.allclose(parameter.grad, gradient), "the gradients of two processes differ from those of one"
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if "--ddp-worker" in sys.argv:
        ddp_worker()
    else:
        cases.main()
