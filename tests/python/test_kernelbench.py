#!/usr/bin/env python3
"""The solutions of examples/kernelbench against KernelBench's references: same constructor, weights and results."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"PyTorch is not installed: {error}") from None
from torch import nn

import cases

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "kernelbench"


class Model64(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=False):
        super().__init__()
        self.conv1d_transpose = nn.ConvTranspose1d(in_channels, out_channels, kernel_size, stride=stride, padding=padding,
                                                   output_padding=output_padding, groups=groups, bias=bias)

    def forward(self, x):
        return self.conv1d_transpose(x)


class ModelDilated(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, bias=False):
        super().__init__()
        self.conv1d_transpose = nn.ConvTranspose1d(in_channels, out_channels, kernel_size, stride=stride, padding=padding,
                                                   dilation=dilation, bias=bias)

    def forward(self, x):
        return self.conv1d_transpose(x)


# The problems' own arguments at the ends of the lists; lengths and batches are smaller.
PROBLEMS = {64: (Model64, [(4, 6, 5, 3, 1, 2, 2, True), (6, 6, 4, 2, 1), (128, 128, 3)]),
            74: (ModelDilated, [(4, 6, 5, 2, 1, 2, True), (32, 64, 5, 1, 0, 3)]),
            79: (ModelDilated, [(4, 6, 3), (32, 64, 3, 2, 1, 2)])}


@unittest.skipUnless(FOLDER.is_dir(), "examples/kernelbench is not here: this is not the source tree")
class Solutions(unittest.TestCase):
    def solution(self, problem):
        """As the evaluator loads it: the source is executed."""
        context = {}
        exec(compile((FOLDER / f"level1_{problem}.py").read_text(encoding="utf-8"), f"level1_{problem}", "exec"), context)
        return context["ModelNew"]

    def test_same_weights_and_results(self):
        for problem, (reference, settings) in PROBLEMS.items():
            for arguments in settings:
                with self.subTest(problem=problem, arguments=arguments), torch.no_grad():
                    models = []
                    for kind in (reference, self.solution(problem)):
                        torch.manual_seed(42)
                        models.append(kind(*arguments))
                    self.assertEqual(list(models[0].state_dict()), list(models[1].state_dict()))
                    for e, a in zip(models[0].parameters(), models[1].parameters()):
                        self.assertTrue(torch.equal(e, a))
                    x = torch.rand(2, arguments[0], 50)
                    self.assertTrue(torch.allclose(models[1](x), models[0](x), atol=1e-4, rtol=1e-4))
                    self.assertTrue(torch.allclose(models[1].bfloat16()(x.bfloat16()).float(), models[0](x), atol=2e-2, rtol=2e-2))

    def run_driver(self, *arguments):
        done = subprocess.run([sys.executable, str(FOLDER / "run.py"), *arguments], capture_output=True, text=True,
                              env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
        return done.returncode, done.stderr

    def test_driver_rejects_bad_input(self):
        with tempfile.TemporaryDirectory() as empty:
            status, said = self.run_driver(empty, "--problems", "64")
            self.assertEqual(status, 1)
            self.assertIn("expected one file KernelBench/level1/64_*.py", said)
            status, said = self.run_driver(empty, "--problems", "65")
            self.assertEqual(status, 2)
            self.assertIn("expected some of 64, 74, 79, got 65", said)
            status, said = self.run_driver(empty, "--modes", "fp8")
            self.assertIn("expected some of fp32, bf16, default, got 'fp8'", said)
            level = pathlib.Path(empty, "KernelBench", "level1")
            level.mkdir(parents=True)
            (level / "64_conv_transposed_1D.py").write_text("", encoding="utf-8")
            status, said = self.run_driver(empty, "--problems", "64")
            self.assertEqual(status, 1)
            self.assertIn("PyTorch sees none here", said)


if __name__ == "__main__":
    cases.main()
