"""The Meson that made a build folder, whatever PATH has."""
import re
import shlex
from pathlib import Path


def meson_in_use(build_root: Path) -> list[str]:
    text = (build_root / "build.ninja").read_text(encoding="utf-8")
    return shlex.split(re.search(r"rule REGENERATE_BUILD\n command = (.*?) --internal", text).group(1))
