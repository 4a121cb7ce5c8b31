#!/usr/bin/env python3
"""Runs a test by a Python that has a module: with_module.py MODULE PACKAGE_FOLDER TEST [ARGUMENT...]

PACKAGE_FOLDER holds the package polyphase, whose extension is for one version of Python. The Pythons that are tried: $POLYPHASE_TORCH_PYTHON
or $POLYPHASE_JAX_PYTHON for those modules, this one, python3 on PATH, /usr/bin/python3. Exit status 77 (skipped) if none has the module.
"""

import os
import pathlib
import subprocess
import sys

PROBE = "import sys, {0}; assert sys.version_info[:2] == {1}; print({0}.__version__)"


def version_of(python, module):
    """The module's version; None if this Python lacks it or is of another version."""
    try:
        done = subprocess.run([python, "-c", PROBE.format(module, tuple(sys.version_info[:2]))], capture_output=True, text=True, timeout=120)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main():
    module, folder, *test = sys.argv[1:]
    candidates = [os.environ.get(f"POLYPHASE_{module.upper()}_PYTHON"), sys.executable, "python3", "/usr/bin/python3"]
    for python in filter(None, candidates):
        version = version_of(python, module)
        if version is not None:
            print(f"{python}: {module} {version}", flush=True)
            paths = [folder, str(pathlib.Path(test[0]).parent), os.environ.get("PYTHONPATH", "")]
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            os.execvp(python, [python, *test])
    print(f"no Python {sys.version_info[0]}.{sys.version_info[1]} here has {module} (looked at: {', '.join(filter(None, candidates))})")
    sys.exit(77)


if __name__ == "__main__":
    main()
