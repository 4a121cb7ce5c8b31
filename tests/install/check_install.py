#!/usr/bin/env python3
"""Installs the library into a temporary folder and builds and runs a client against it.

usage: check_install.py pkg-config|cmake|subproject SOURCE_ROOT BUILD_ROOT COMPILER...
Exits 77 (skipped) if the requested tool is not installed.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from meson_in_use import meson_in_use  # noqa: E402

way, source_root, build_root = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
compiler = sys.argv[4:]
client = source_root / "tests/install/client"


def run(command: list, cwd: Path, **environment: str) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"exit status {done.returncode}: {' '.join(map(str, command))}\n{done.stdout[-6000:]}{done.stderr[-6000:]}")
        sys.exit(1)
    return done.stdout


def install(folder: Path) -> Path:
    """Installs under folder and returns the folder that holds libpolyphase and pkgconfig/."""
    run([*meson_in_use(build_root), "install", "-C", build_root, "--no-rebuild", "--quiet", "--destdir", folder / "root"], folder)
    return next((folder / "root").rglob("polyphase.pc")).parent.parent


def through_pkg_config(folder: Path) -> None:
    lib = install(folder)
    # The sysroot puts the temporary folder before the prefix in the file, so that nothing of the system is found.
    environment = {"PKG_CONFIG_LIBDIR": str(lib / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(folder / "root")}
    for kind, extra in (("shared", []), ("static", ["--static"])):
        flags = run(["pkg-config", *extra, "--cflags", "--libs", "polyphase"], folder, **environment).split()
        if kind == "static":
            flags = [str(lib / "libpolyphase.a") if flag == "-lpolyphase" else flag for flag in flags]
        run([*compiler, "-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Werror", client / "client.cpp", "-o", kind, *flags], folder)
        run([folder / kind], folder, LD_LIBRARY_PATH=str(lib) if kind == "shared" else "")
    include = next((folder / "root").rglob("polyphase.hpp")).parent.parent
    run([*compiler, "-std=c++20", "-fsyntax-only", "-I", include, client / "client.cpp"], folder)  # one path is enough


def through_cmake(folder: Path) -> None:
    lib = install(folder)
    prefix = lib.parent if lib.name in ("lib", "lib64") else lib.parent.parent
    moved = folder / "moved"  # the package must work in any folder
    prefix.rename(moved)
    environment = {"CXX": compiler[-1], "CC": "cc"}
    run(["cmake", "-S", client, "-B", "build", f"-DCMAKE_PREFIX_PATH={moved}"], folder, **environment)
    run(["cmake", "--build", "build"], folder)
    for program in ("client", "client_static"):
        run([folder / "build" / program], folder)


def as_subproject(folder: Path) -> None:
    """Without optimization, not even of the kernels for the CPU, which have their own option for it."""
    shutil.copytree(client, folder / "client")
    (folder / "client/subprojects").mkdir()
    (folder / "client/subprojects/polyphase").symlink_to(source_root, target_is_directory=True)
    cxx = compiler[-1]
    if shutil.which("ccache"):
        cxx = f"ccache {cxx}"
    run([*meson_in_use(build_root), "setup", "build", "--buildtype=plain", "-Doptimization=0", "-Dcpp_args=-O0", "-Ddefault_library=static",
         "-Dpolyphase:cuda=disabled", "-Dpolyphase:together=true"], folder / "client", CXX=cxx)
    run(["ninja", "-C", "build"], folder / "client")
    run([folder / "client/build/client"], folder)
    # Meson's and CMake's compiler checks are in meson-private.
    built = {path.name for path in (folder / "client/build").rglob("*")
             if path.is_file() and os.access(path, os.X_OK) and "meson-private" not in path.parts}
    if built != {"client"}:
        print(f"as a subproject it builds more than the library: {sorted(built)}")
        sys.exit(1)


needed = {"pkg-config": "pkg-config", "cmake": "cmake"}.get(way)
if needed and not shutil.which(needed):
    print(f"there is no {needed} on this machine")
    sys.exit(77)
with tempfile.TemporaryDirectory() as name:
    {"pkg-config": through_pkg_config, "cmake": through_cmake, "subproject": as_subproject}[way](Path(name))
