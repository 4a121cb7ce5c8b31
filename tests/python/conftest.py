"""Counts of a run, for the last line of the scripts that start it."""
import os


def pytest_sessionfinish(session):
    path = os.environ.get("POLYPHASE_TEST_COUNTS")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if path and reporter:
        count = {outcome: len(reporter.stats.get(outcome, [])) for outcome in ("passed", "failed", "error", "skipped")}
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{count['passed']} passed, {count['failed'] + count['error']} failed, {count['skipped']} skipped\n")
