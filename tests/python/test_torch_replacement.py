#!/usr/bin/env python3
"""replace() and restore(): what they take and leave, and that networks compute the same before, between and after."""

import copy
import pathlib
import pickle
import sys
import unittest

try:
    import torch
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"PyTorch is not installed: {error}") from None
from torch import nn
from torch.nn import functional as F

import cases
import polyphase.torch as pt

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEW_WEIGHT_NORM = getattr(nn.utils.parametrizations, "weight_norm", None)
HIFIGAN = {"num_mels": 8, "upsample_initial_channel": 32, "upsample_rates": [4, 3], "upsample_kernel_sizes": [8, 7], "resblock": "1",
           "resblock_kernel_sizes": [3, 7], "resblock_dilation_sizes": [[1, 3], [1, 3]]}
DAC = {"codebook_size": 16, "codebook_dim": 4, "latent_dim": 16, "n_codebooks": 3, "decoder_dim": 32, "decoder_rates": [4, 2]}


def count(model, kind):
    return sum(type(module) is kind or type(module).__bases__[0] is kind for module in model.modules())


class Layers(unittest.TestCase):
    def check(self, model, *inputs, of=1e-5):
        """Values and gradients before, replaced and restored; returns the report."""
        def run():
            inside = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
            y = model(*inside)
            wanted = [t for t in (*inside, *model.parameters()) if t.requires_grad]
            return [y, *torch.autograd.grad(y.square().sum(), wanted)]

        model.eval()  # spectral norm makes a step of its power iteration in training
        keys, before = list(model.state_dict()), [t.detach().clone() for t in run()]
        parameters = [id(p) for p in model.parameters()]
        report = pt.replace(model)
        replaced = run()
        self.assertEqual((list(model.state_dict()), [id(p) for p in model.parameters()]), (keys, parameters))
        for a, e in zip(replaced, before):
            self.assertLessEqual((a - e).abs().max(), of * e.abs().max())
        back = pt.restore(model)
        self.assertEqual((back.replaced, back.left), (report.replaced, {}))
        for a, e in zip(run(), before):
            self.assertTrue(torch.equal(a, e))
        pt.replace(model)
        return report

    def test_plain(self):
        net = nn.Sequential(nn.Conv1d(3, 4, 5, padding=2), nn.ReLU(), nn.ConvTranspose1d(4, 2, 4, 2))
        report = self.check(net, torch.randn(2, 3, 9))
        self.assertEqual((report.replaced, report.left), (["0", "2"], {}))
        self.assertIs(type(net[0]), pt.Conv1d)
        self.assertEqual(str(report).splitlines()[0], "2 layers replaced, 0 left")
        self.assertIn("0  replaced", repr(report))
        self.assertEqual(pt.replace(net).replaced, [])  # nothing is left to do
        layer = nn.Conv1d(3, 4, 5)
        pt.replace(layer, precision="tf32")
        self.assertEqual((type(layer), layer.precision), (pt.Conv1d, "tf32"))
        pt.restore(layer)
        self.assertEqual((type(layer), "precision" in vars(layer)), (nn.Conv1d, False))
        with self.assertRaisesRegex(ValueError, "got 'f8'"):
            pt.replace(layer, precision="f8")

    def norms(self):
        yield "older weight norm", nn.utils.weight_norm, nn.utils.remove_weight_norm
        if NEW_WEIGHT_NORM is not None:
            yield "newer weight norm", NEW_WEIGHT_NORM, lambda layer: nn.utils.parametrize.remove_parametrizations(layer, "weight")
        yield "older spectral norm", nn.utils.spectral_norm, nn.utils.remove_spectral_norm
        yield ("newer spectral norm", nn.utils.parametrizations.spectral_norm,
               lambda layer: nn.utils.parametrize.remove_parametrizations(layer, "weight"))

    def test_numbers_may_change_between_calls(self):
        x, theirs = torch.randn(2, 4, 20), nn.Conv1d(4, 6, 3)
        layer = copy.deepcopy(theirs)
        pt.replace(layer)
        changes = [lambda each: setattr(each, "stride", (2,)), lambda each: setattr(each, "padding", (1,)),
                   lambda each: setattr(each, "stride", [1]), lambda each: each.stride.__setitem__(0, 3),  # the same list
                   lambda each: (setattr(each, "stride", (1,)), setattr(each, "padding", "same")),
                   lambda each: setattr(each, "weight", nn.Parameter(torch.linspace(0, 1, 6 * 4 * 5).reshape(6, 4, 5))),
                   lambda each: setattr(each, "dilation", (2,))]
        for number, change in enumerate([lambda each: None, *changes]):
            for each in (layer, theirs):
                change(each)
            torch.testing.assert_close(layer(x), theirs(x), msg=f"change {number}")
        self.assertIs(pickle.loads(pickle.dumps(layer)).__class__, pt.Conv1d)
        pt.restore(layer)
        self.assertEqual(set(vars(layer)), set(vars(theirs)))

    def test_norms(self):
        """They keep working, can be added and removed on replaced layers, and copies are independent."""
        for name, add, remove in self.norms():
            for make in (lambda: nn.ConvTranspose1d(4, 2, 4, 2), lambda: nn.Conv1d(4, 2, 3)):
                with self.subTest(name, layer=make()):
                    torch.manual_seed(1)
                    net = nn.Sequential(add(make()))
                    x = torch.randn(2, 4, 9)
                    report = self.check(net, x)
                    self.assertEqual((report.replaced, report.left), (["0"], {}))
                    with torch.no_grad():
                        y = net(x)
                        other = copy.deepcopy(net)
                        self.assertTrue(torch.equal(other(x), y))
                        for parameter in other.parameters():
                            parameter.mul_(1.5)
                        other(x)
                        self.assertTrue(torch.equal(net(x), y))
                        remove(net[0])
                        self.assertTrue(torch.allclose(net(x), y, atol=1e-6))
                        self.assertIn(type(net[0]), (pt.Conv1d, pt.ConvTranspose1d))
                        add(net[0])
                        self.assertTrue(torch.allclose(net(x), y, atol=1e-5) or "spectral" in name)
                    self.assertEqual(pt.restore(net).replaced, ["0"])
                    remove(net[0])
                    self.assertIn(type(net[0]), (nn.Conv1d, nn.ConvTranspose1d))

    def test_what_stays(self):
        """References, hooks, optimizers and buffers of a layer are those from before."""
        layer, seen = nn.Conv1d(2, 2, 3), []
        layer.register_buffer("extra", torch.ones(1))
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
        net = nn.ModuleDict({"a": layer, "b": nn.Sequential(layer)})
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        self.assertEqual(pt.replace(net).replaced, ["a"])  # one object under two names
        self.assertIs(net["b"][0], layer)
        before = layer.weight.detach().clone()
        net["b"](torch.randn(1, 2, 5)).sum().backward()
        optimizer.step()
        self.assertFalse(torch.equal(layer.weight, before))
        self.assertEqual(seen, [(1, 2, 3)])

    def test_what_is_left(self):
        class Own(nn.Conv1d):
            def forward(self, x):
                return super().forward(F.pad(x, (2, 0)))

        class OnlyANorm(pt.Conv1d):
            pass

        net = nn.ModuleDict({"own": Own(2, 2, 3), "flat": nn.Conv2d(2, 2, 3), "lazy": nn.LazyConv1d(2, 3), "linear": nn.Linear(2, 2),
                             "complex": nn.Conv1d(2, 2, 3, dtype=torch.complex64), "derived": OnlyANorm(2, 2, 3), "good": nn.Conv1d(2, 2, 3)})
        report = pt.replace(net)
        self.assertEqual(report.replaced, ["good"])
        self.assertEqual(sorted(report.left), ["complex", "flat", "lazy", "own"])
        for name, words in (("own", "Own is a subclass"), ("flat", "Conv2d is not a convolution along one"), ("lazy", "before its first call"),
                            ("complex", "torch.complex64; expected float32")):
            self.assertIn(words, report.left[name])
            self.assertIn(f"{name:7}  left: ", str(report))
        self.assertEqual(list(pt.restore(net).left), ["derived"])
        net["lazy"](torch.randn(1, 4, 9))
        self.assertEqual(pt.replace(net["lazy"]).replaced, [""])


@unittest.skipUnless((ROOT / "bench" / "torch_networks.py").is_file(), "bench/torch_networks.py is not here: this is not the source tree")
class Networks(unittest.TestCase):
    """The plain PyTorch models that bench/ times, small. In f64, equal but for the order of sums."""

    def check(self, name, settings, x):
        sys.path.insert(0, str(ROOT / "bench"))
        import torch_networks
        torch.manual_seed(0)
        model = getattr(torch_networks, name)(settings).double()
        add = NEW_WEIGHT_NORM or nn.utils.weight_norm
        for module in model.modules():
            if isinstance(module, (nn.Conv1d, nn.ConvTranspose1d)):
                add(module)
        report = Layers.check(self, model, x, of=1e-12)
        self.assertEqual((len(report.replaced), report.left), (sum(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules()), {}))
        with torch.no_grad():
            y = model(x)  # the older weight norm leaves a weight that can be copied
            average = torch.optim.swa_utils.AveragedModel(model)
            average.update_parameters(model)
            self.assertTrue(torch.equal(average(x), y))

    def test_hifigan(self):
        self.check("HifiGan", HIFIGAN, torch.randn(2, 8, 12).double())

    def test_dac(self):
        self.check("Dac", DAC, torch.randint(16, (2, 3, 9)))


if __name__ == "__main__":
    cases.main()
