"""Says at the end what tools/count_tests.py reads: why tests were skipped, and the counts. POLYPHASE_TEST_COUNTS: also to that file."""
import os

import pytest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    stats = {outcome: terminalreporter.stats.get(outcome, []) for outcome in ("passed", "failed", "error", "skipped")}
    for report in stats["skipped"]:
        terminalreporter.write_line(f"skipped: {report.nodeid}: {report.longrepr[2].removeprefix('Skipped: ')}")
    failed = len(stats["failed"]) + len(stats["error"])
    counts = f"{len(stats['passed'])} passed, {failed} failed, {len(stats['skipped'])} skipped"
    terminalreporter.write_line(f"test cases: {counts}")
    path = os.environ.get("POLYPHASE_TEST_COUNTS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(counts + "\n")
