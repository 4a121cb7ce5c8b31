"""Finds the libraries of NVIDIA's wheels that the extension needs. Those of the system are found by the system's own loader."""
import ctypes
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Optional, Sequence

_MISSING = re.compile(r"(libcu\w*\.so[.\d]*): cannot open shared object file")


def missing_library(error: ImportError) -> Optional[str]:
    """The CUDA library that the extension could not be loaded without; None for any other error."""
    found = _MISSING.search(str(error))
    return found.group(1) if found else None


def find(library: str, folders: Sequence[str]) -> Optional[Path]:
    """Where a wheel of NVIDIA has the library: nvidia/cu13/lib or nvidia/cublas/lib below one of the folders."""
    return next((path for folder in folders for path in sorted(Path(folder).glob(f"nvidia/*/lib/{library}"))), None)


def load(library: str) -> None:
    """Loads the library for the extension. Raises ImportError that says what to install."""
    path = find(library, sys.path)
    if path is None:
        version = library.rsplit(".", 1)[-1]
        raise ImportError(
            f"polyphase: {library} was found neither in the system nor in a wheel; install CUDA {version}'s cuBLAS, "
            f"for example with: pip install 'nvidia-cublas=={version}.*'")
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def import_with(error: ImportError, module: str) -> ModuleType:
    """Imports a module that failed with `error`, after loading what it missed. Raises the error if that is not a CUDA library."""
    loaded = set()
    while True:
        library = missing_library(error)
        if library is None or library in loaded:
            raise error
        load(library)
        loaded.add(library)
        try:
            return importlib.import_module(module)
        except ImportError as another:
            error = another
