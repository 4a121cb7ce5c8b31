"""What the tests of the Python package share: how they are run and counted, and how far a result may be from float64's."""

import os
import socket
import subprocess
import sys
import unittest


class _Result(unittest.TextTestResult):
    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            test.has_failed_part = True


def main():
    """Runs the test cases of the calling program. Prints why some were skipped, then
    `test cases: N passed, N failed, N skipped`, which tools/count_tests.py reads."""
    program = unittest.main(module="__main__", exit=False, testRunner=unittest.TextTestRunner(stream=sys.stdout, resultclass=_Result))
    result = program.result
    failed = {getattr(case, "test_case", case).id() for case, _ in (*result.failures, *result.errors)}
    for case, reason in result.skipped:
        print(f"skipped: {case.id().removeprefix('__main__.')}: {reason}")
    print(f"test cases: {result.testsRun - len(failed) - len(result.skipped)} passed, {len(failed)} failed, {len(result.skipped)} skipped")
    sys.exit(1 if failed or result.testsRun == len(result.skipped) and not result.skipped else 0)


def bound(torch, expected, absolute_sum, terms, dtype):
    """How far a sum of `terms` products may be from `expected` (f64): a few roundings of each product's size, which add up like those of
    random signs, and one of the result. `absolute_sum`: the same sum of absolute values. 16-bit types are summed in f32."""
    eps = torch.finfo(dtype).eps
    eps_of_sum = eps if dtype == torch.float64 else torch.finfo(torch.float32).eps
    return (4 + terms ** 0.5) * eps_of_sum * absolute_sum + eps * expected.abs()


def run_two_workers(file):
    """Exit codes and joined output of two processes `file --ddp-worker` that meet as torchrun's do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = []
    for rank in range(2):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        workers.append(subprocess.Popen([sys.executable, file, "--ddp-worker"], env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True))
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    return [worker.returncode for worker in workers], "\n".join(outputs)
