"""The wheels of this package have the same files, so that only one of them can be installed."""
import os

_WHEELS = ("polyphase", "polyphase_cuda12", "polyphase_cuda13")


def refuse_two(folder: str) -> None:
    """Raises ImportError if a folder of packages has more than one of the wheels."""
    names = [name.split("-")[0] for name in os.listdir(folder) if name.endswith(".dist-info")]
    installed = sorted(name.replace("_", "-") for name in names if name in _WHEELS)
    if len(installed) > 1:
        raise ImportError(
            f"{' and '.join(installed)} are both installed and overwrite each other; "
            f"uninstall them with: pip uninstall {' '.join(installed)}, then install one")
