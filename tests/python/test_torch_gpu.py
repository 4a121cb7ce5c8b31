#!/usr/bin/env python3
"""polyphase.torch on GPUs: values, streams, CUDA graphs, compilers, several devices, processes. Skipped without a GPU."""

import os
import sys
import unittest

try:
    import torch
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"PyTorch is not installed: {error}") from None
from torch import nn
from torch.nn import functional as F

import cases
import polyphase
import polyphase.torch as pt
from polyphase import _core

if not torch.cuda.is_available():
    NO_GPU = "PyTorch sees no GPU here"
elif not _core._with_cuda:
    NO_GPU = "this build of polyphase has no CUDA"
else:
    NO_GPU = ""
GPUS = 0 if NO_GPU else torch.cuda.device_count()

# ours, torch's, x, weight, C_out, the other arguments
LAYERS = [("conv_transpose1d", (3, 32, 70), (32, 16, 8), 16, (4, 2, 0, 1, 1)), ("conv_transpose1d", (2, 12, 65), (12, 2, 5), 12, (3, 1, 2, 6, 2)),
          ("conv_transpose1d", (2, 64, 300), (64, 32, 16), 32, (8, 4, 0, 1, 1)), ("conv1d", (3, 32, 200), (16, 32, 7), 16, (1, 3, 1, 1)),
          ("conv1d", (2, 12, 99), (24, 1, 4), 24, (2, 1, 3, 12))]


def vocoder():
    return nn.Sequential(pt.Conv1d(8, 64, 7, padding=3), nn.LeakyReLU(0.1), pt.ConvTranspose1d(64, 32, 16, 8, 4), nn.LeakyReLU(0.1),
                         pt.Conv1d(32, 1, 7, padding=3), nn.Tanh())


@unittest.skipIf(NO_GPU, NO_GPU)
class Gpu(unittest.TestCase):
    def layers(self, dtype, device="cuda"):
        for name, x, w, channels, numbers in LAYERS:
            make = lambda *shape: torch.randn(*shape, device=device, dtype=dtype).requires_grad_()
            yield getattr(pt, name), getattr(F, name), (make(*x), make(*w), make(channels)), numbers

    def test_values_and_gradients(self):
        """Against f64; componentwise, by the size of the sums of absolute values."""
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            for ours, theirs, tensors, numbers in self.layers(dtype):
                with self.subTest(dtype=dtype, theirs=theirs.__name__, numbers=numbers):
                    y = ours(*tensors, *numbers)
                    wide = [t.detach().double().requires_grad_() for t in tensors]
                    expected, size = theirs(*wide, *numbers), theirs(*(t.detach().abs() for t in wide), *numbers)
                    self.assertTrue(bool(((y.double() - expected).abs() <= cases.bound(torch, expected, size, tensors[1].numel() / 8, dtype)).all()))
                    gradient = torch.randn_like(y)
                    got = torch.autograd.grad(y, tensors, gradient)
                    for a, e in zip(got, torch.autograd.grad(expected, wide, gradient.double())):
                        limit = (64 * torch.finfo(torch.float32).eps + 2 * torch.finfo(dtype).eps) * e.abs().max()
                        self.assertLessEqual((a.double() - e).abs().max(), limit)

    def test_second_gradients(self):
        for ours, _, tensors, numbers in self.layers(torch.float64):
            small = [tensors[0][:1, :, :9].detach().requires_grad_(), *tensors[1:]]
            self.assertTrue(torch.autograd.gradgradcheck(lambda *t: ours(*t, *numbers), small, atol=1e-4, fast_mode=True))

    def test_graph(self):
        """Replays compute with the input of the moment, wait for nothing and take no memory."""
        net = vocoder().cuda()
        x = torch.randn(2, 8, 50, device="cuda")
        for training in (False, True):
            def work():
                if not training:
                    with torch.no_grad():
                        return [net(x)]
                y = net(x)
                return [y, *torch.autograd.grad(y.square().sum(), list(net.parameters()))]

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                work()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outputs = work()
            for seed in range(3):
                torch.manual_seed(seed)
                x.copy_(torch.randn_like(x))
                before = torch.cuda.memory_stats()["num_device_alloc"]
                graph.replay()
                self.assertEqual(torch.cuda.memory_stats()["num_device_alloc"], before)
                got = [t.clone() for t in outputs]
                for a, e in zip(got, work()):
                    self.assertTrue(torch.equal(a, e))

    def test_streams(self):
        """The result waits for what is in front of it on the current stream, the default one or another, and nothing else does."""
        layer = pt.ConvTranspose1d(32, 16, 8, 4, 2).cuda()
        data = torch.randn(2, 32, 100, device="cuda")
        expected = layer(data)
        gradients = torch.autograd.grad(expected, list(layer.parameters()), torch.ones_like(expected))
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            with self.subTest(stream=stream):
                x = torch.zeros_like(data)
                torch.cuda.synchronize()
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(int(2e8))
                    x.copy_(data)
                    y = layer(x)
                    got = torch.autograd.grad(y, list(layer.parameters()), torch.ones_like(y))
                    self.assertFalse(stream.query())  # the host was not held up
                stream.synchronize()
                for a, e in zip((y, *got), (expected, *gradients)):
                    self.assertTrue(torch.equal(a, e))

    def test_autocast(self):
        net = vocoder().cuda()
        x = torch.randn(2, 8, 50, device="cuda")
        for dtype in (torch.float16, torch.bfloat16):
            with torch.autocast("cuda", dtype):
                y = net(x)
            self.assertEqual(y.dtype, dtype)
            self.assertLess((y.float() - net(x)).abs().max(), 16 * torch.finfo(dtype).eps)
            y.float().sum().backward()
            self.assertEqual({p.grad.dtype for p in net.parameters()}, {torch.float32})

    @unittest.skipUnless(hasattr(torch.library, "register_fake"), "operators need torch 2.4")
    def test_compiled(self):
        net = vocoder().cuda()
        for mode in ("default", "reduce-overhead"):
            torch._dynamo.reset()
            compiled = torch.compile(net, fullgraph=True, dynamic=mode == "default", mode=mode)
            for length in (50, 51, 70):
                x = torch.randn(2, 8, length, device="cuda")
                for _ in range(3):
                    self.assertTrue(torch.allclose(compiled(x).clone(), net(x), atol=1e-5))
        x, w, b = next(self.layers(torch.float32))[2]
        torch.library.opcheck(torch.ops.polyphase.conv_transpose1d, (x, w, b, 4, 2))

    def test_antialiased(self):
        tensors = [t.cuda() for t in (torch.randn(2, 3, 90), torch.rand(3) + 0.5, torch.rand(3) + 0.5, torch.rand(12) / 12, torch.rand(12) / 12)]
        wide = [t.double().cpu() for t in tensors]
        mine, other = [[t.detach().requires_grad_() for t in part[:3]] for part in (tensors, wide)]
        y, expected = pt.antialias_snake(*mine, *tensors[3:]), pt.antialias_snake(*other, *wide[3:])
        self.assertLess((y.double().cpu() - expected).abs().max(), 1e-5)
        for a, e in zip(torch.autograd.grad(y.sum(), mine), torch.autograd.grad(expected.sum(), other)):
            self.assertLess((a.double().cpu() - e).abs().max(), 1e-5 * e.abs().max())

    def test_same_bits_every_time(self):
        layer = pt.ConvTranspose1d(32, 16, 8, 4, 2).cuda()
        x = torch.randn(4, 32, 500, device="cuda", requires_grad=True)
        run = lambda: torch.autograd.grad(layer(x).sin().sum(), [x, *layer.parameters()])
        first = run()
        for _ in range(3):
            self.assertTrue(all(torch.equal(a, e) for a, e in zip(run(), first)))

    def test_bad_input(self):
        x, w = torch.randn(2, 6, 9, device="cuda"), torch.randn(6, 4, 3)
        with self.assertRaisesRegex(polyphase.DeviceError, "on one device, got cuda:0 and cpu"):
            pt.conv_transpose1d(x, w)
        self.assertEqual(pt.conv_transpose1d(x, w.cuda()).shape, (2, 4, 11))  # and it works afterwards

    @unittest.skipIf(GPUS < 2, f"{GPUS} GPUs; two are needed")
    def test_second_gpu(self):
        layer = pt.ConvTranspose1d(32, 16, 8, 4, 2)
        x = torch.randn(2, 32, 100)
        ys = [layer.to(f"cuda:{i}")(x.to(f"cuda:{i}")) for i in range(2)]
        self.assertEqual((ys[1].device.index, torch.cuda.current_device()), (1, 0))
        self.assertTrue(torch.equal(ys[0].cpu(), ys[1].cpu()))

    @unittest.skipIf(GPUS < 2, f"{GPUS} GPUs; two are needed")
    def test_distributed_data_parallel(self):
        codes, output = cases.run_two_workers(__file__)
        self.assertEqual(codes, [0, 0], output)


def ddp_worker():
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl")
    torch.manual_seed(0)
    net = vocoder().double().cuda()
    x = torch.randn(4, 8, 10).double().cuda()
    expected = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))
    wrapped = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
    wrapped(x[2 * rank:2 * rank + 2]).square().mean().backward()
    for parameter, gradient in zip(net.parameters(), expected):
        assert torch.allclose(parameter.grad, gradient), "the gradients of two processes differ from those of one"
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if "--ddp-worker" in sys.argv:
        ddp_worker()
    else:
        cases.main()
