#!/usr/bin/env python3
"""Checks and times the solutions in this folder with KernelBench's own evaluator, on a GPU.

    run.py KERNELBENCH [--problems 64,74,79] [--modes fp32,bf16,default] [--correct-trials 5] [--trials 100] [--json FILE]

KERNELBENCH is a checkout of the public repository ScalingIntelligence/KernelBench, which needs the packages torch, numpy, requests and
pydantic, and imports python-dotenv, openai and litellm, which the evaluator does not use. Modes:
  fp32     float32 with TF32 off in the reference too
  bf16     both in bfloat16
  default  float32 as torch is set by default: the reference's cuDNN may round its operands to TF32. The solution does not, so the evaluator
           may call it wrong, within 1e-4, because it is more accurate; it is then timed all the same
Prints, and writes as JSON records, the evaluator's verdict and the milliseconds of the solution, of PyTorch eager and of torch.compile,
all by KernelBench's timing with device events.
"""

import argparse
import copy
import json
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
PROBLEMS = (64, 74, 79)
MODES = {"fp32": (torch.float32, False), "bf16": (torch.bfloat16, True), "default": (torch.float32, True)}


def reference_source(kernelbench, problem):
    """The text of KernelBench's own problem."""
    found = sorted((kernelbench / "KernelBench" / "level1").glob(f"{problem}_*.py"))
    if len(found) != 1:
        raise SystemExit(f"run.py: expected one file KernelBench/level1/{problem}_*.py in {kernelbench}, found {len(found)}")
    return found[0].read_text(encoding="utf-8")


def solution_source(problem):
    return (HERE / f"level1_{problem}.py").read_text(encoding="utf-8")


def seeded(model, arguments):
    torch.manual_seed(42)
    return model(*arguments)


def differences(reference, solution, inputs, tolerance):
    """The part of the outputs beyond the evaluator's tolerance, and each side's largest error against float64 in the first sample."""
    with torch.no_grad():
        expected, got = reference(*inputs), solution(*inputs)
        outside = (~torch.isclose(got, expected, atol=tolerance, rtol=tolerance)).double().mean().item()
        exact = copy.deepcopy(reference).double()(*(x[:1].double() for x in inputs))
        return {"outside_tolerance": outside, "reference_error": (expected[:1] - exact).abs().max().item(),
                "solution_error": (got[:1] - exact).abs().max().item()}


def evaluate(kernelbench, problem, mode, arguments):
    from kernelbench import eval as evaluator
    from kernelbench import timing

    dtype, tf32 = MODES[mode]
    torch.backends.cudnn.allow_tf32 = tf32
    reference, solution = reference_source(kernelbench, problem), solution_source(problem)
    result = evaluator.eval_kernel_against_ref(reference, solution, num_correct_trials=arguments.correct_trials, measure_performance=False,
                                               precision=dtype, device=torch.device("cuda:0"))
    Model, get_init_inputs, get_inputs = evaluator.load_original_model_and_inputs(reference, {})
    ModelNew = evaluator.load_custom_model(solution, {}, None)
    init = get_init_inputs()
    models = [seeded(kind, init).to("cuda:0", dtype) for kind in (Model, ModelNew)]
    inputs = [x.to("cuda:0", dtype) for x in get_inputs()]
    record = {"case": f"kernelbench_{problem}", "mode": mode, "correct": bool(result is not None and result.correctness),
              **differences(*models, inputs, evaluator.get_tolerance_for_precision(dtype))}
    measure = timing.get_timing_function("cuda_event")

    def milliseconds(model):
        with torch.no_grad():
            times = measure(model, inputs, num_trials=arguments.trials, verbose=False, device=torch.device("cuda:0"))
            return timing.get_timing_stats(times, device=torch.device("cuda:0"))["mean"]

    record["ms"] = milliseconds(models[1])
    record["peers"] = {"torch_eager": milliseconds(models[0]), "torch_compiled": milliseconds(torch.compile(models[0]))}
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernelbench", type=pathlib.Path)
    parser.add_argument("--problems", default="64,74,79")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--correct-trials", type=int, default=5)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    problems = [int(text) if text.isdigit() else text for text in arguments.problems.split(",")]
    for what, given, known in (("--problems", problems, PROBLEMS), ("--modes", arguments.modes.split(","), MODES)):
        for one in given:
            if one not in known:
                parser.error(f"{what}: expected some of {', '.join(map(str, known))}, got {one!r}")
    for problem in problems:
        reference_source(arguments.kernelbench, problem)
    if not torch.cuda.is_available():
        raise SystemExit("run.py: KernelBench's evaluator needs a GPU, and PyTorch sees none here")
    sys.path.insert(0, str(arguments.kernelbench / "src"))
    records = []
    print(f"{'problem':>8} {'mode':8} {'correct':8}{'ours ms':>9}{'eager ms':>10}{'compiled':>10}  outside tolerance; error: theirs, ours")
    for problem in problems:
        for mode in arguments.modes.split(","):
            record = evaluate(arguments.kernelbench, problem, mode, arguments)
            records.append(record)
            print(f"{problem:>8} {mode:8} {str(record['correct']):8}{record['ms']:9.3f}{record['peers']['torch_eager']:10.3f}"
                  f"{record['peers']['torch_compiled']:10.3f}  {record['outside_tolerance']:.1%}; {record['reference_error']:.1e}, "
                  f"{record['solution_error']:.1e}", flush=True)
            if arguments.json is not None:  # after every record, so that a stopped run leaves its results
                whole = {"suite": "kernelbench", "device": torch.cuda.get_device_name(0), "torch": torch.__version__, "records": records}
                arguments.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
