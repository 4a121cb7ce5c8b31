#!/usr/bin/env python3
"""The rules of the house that a compiler does not check. usage: check_house.py SOURCE_ROOT

Prints what breaks a rule, then how many rules hold.
"""
import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()
CODE = (".cpp", ".hpp", ".cu", ".cuh")
UNPAIRED_TESTS = {"fuzz", "golden", "regression", "structure", "headers", "install", "support"}
ROOF = 450
KERNELS = ROOT / "src/cuda/conv"  # a folder for each
PROGRAMS = ("src", "tests", "examples", "bench", "program", "tool", "python")
# Everything that people write; licences and data are not ours.
WRITTEN = (*PROGRAMS, "tools", "packaging", "docs")
SCRIPTS = (".py", ".sh")


def files_under(*folders: str) -> list[Path]:
    return sorted(p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in CODE)


def written() -> list[Path]:
    """Sources, scripts and meson.build files of every folder."""
    files = [p for folder in WRITTEN for p in (ROOT / folder).rglob("*") if p.suffix in (*CODE, *SCRIPTS) or p.name == "meson.build"]
    return sorted([*files, ROOT / "meson.build", ROOT / ".ci/run"])


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_of(path: Path) -> str:
    """The text without comments and strings, lines kept."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    return re.sub(r"//[^\n]*", "", text)


def matches(paths: list[Path], pattern: str, what: str) -> list[str]:
    found = []
    for path in paths:
        for number, line in enumerate(code_of(path).split("\n"), 1):
            if re.search(pattern, line):
                found.append(f"{name(path)}:{number}: {what}: {line.strip()}")
    return found


def every_source_has_a_test() -> list[str]:
    """src/cpu/reduce/reduce.cpp by tests/cpu/test_reduce.cpp; its pieces (reduce_kernels.cpp) by that one or by their own; the pieces of a
    folder of one kernel (src/cuda/conv/direct/f16.cu) also by the folder's test (tests/cuda/conv/direct/test_direct.cpp)."""
    problems = []
    for source in files_under("src"):
        if source.suffix not in (".cpp", ".cu"):
            continue
        folder = ROOT / "tests" / source.parent.relative_to(ROOT / "src")
        words = source.stem.split("_")
        stems = ["_".join(words[:n]) for n in range(len(words), 0, -1)]
        if KERNELS in source.parent.parents:
            stems.append(folder.name)
        if not any((folder / f"test_{stem}{suffix}").is_file() for stem in stems for suffix in (".cpp", ".cu")):
            problems.append(f"{name(source)} has no test {name(folder)}/test_{source.stem}.cpp")
    return problems


def every_test_has_a_source() -> list[str]:
    problems = []
    for test in files_under("tests"):
        room = test.parent.relative_to(ROOT / "tests")
        if test.suffix not in (".cpp", ".cu") or room.parts[0] in UNPAIRED_TESTS:
            continue
        # tests/ops mirrors src/ops; tests/examples, tests/tool and tests/bench mirror the folders of those names.
        stem = test.stem.removeprefix("test_")
        places = [ROOT / "src" / room / stem, ROOT / room / stem]
        is_of_folder = stem == room.name and KERNELS in places[0].parents and places[0].parent.is_dir()
        if not is_of_folder and not any(p.with_suffix(s).is_file() for p in places for s in CODE):
            problems.append(f"{name(test)} tests no source: there is no {name(places[0])}.cpp or .hpp")
    return problems


def every_file_is_built() -> list[str]:
    problems = []
    for path in files_under(*PROGRAMS):
        # A public header must be installed, and what is compiled must be listed; other headers are found by #include.
        if path.suffix not in (".cpp", ".cu"):
            continue
        lists, folder = "", path.parent
        while folder != ROOT.parent:
            if (folder / "meson.build").is_file():
                lists += (folder / "meson.build").read_text(encoding="utf-8")
            folder = folder.parent
        stem = path.stem.removeprefix("test_")
        if path.name not in lists and not re.search(rf"'{re.escape(stem)}'", lists) and "install/client" not in name(path):
            problems.append(f"{name(path)} is in no meson.build")
    return problems


def files_are_small() -> list[str]:
    """Sources and scripts."""
    files = files_under(*PROGRAMS) + [p for p in written() if p.suffix in SCRIPTS]
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    return [f"{name(p)} has {n} lines; past {ROOF} it is two rooms" for p, n in lengths.items() if n > ROOF]


def headers_are_guarded() -> list[str]:
    headers = [p for p in files_under(*PROGRAMS) if p.suffix in (".hpp", ".cuh")]
    return [f"{name(p)} has no #pragma once" for p in headers if "#pragma once" not in p.read_text(encoding="utf-8")]


def library_is_quiet() -> list[str]:
    pattern = r"\bstd::(cout|cerr|clog)\b|\b(printf|puts|fputs|putchar)\s*\(|(?<![\w.>])(std::)?(exit|_exit|abort|terminate)\s*\("
    # Where a user asks for messages by POLYPHASE_LOG and gives no callback, they have to go somewhere.
    # A process of a failed job whose main thread is stuck can only be ended from outside of it.
    files = [p for p in files_under("src") if name(p) not in ("src/tensor/log.cpp", "src/distributed/watchdog_end_process.cpp")]
    return matches(files, pattern, "the library neither prints nor exits")


def asm_has_one_room() -> list[str]:
    paths = [p for p in files_under("src") if not name(p).startswith("src/cuda/ptx/")]
    return matches(paths, r"\b(asm|__asm__)\b", "asm only under src/cuda/ptx")


def nothing_is_unfinished() -> list[str]:
    paths = files_under("src", "examples", "bench", "program", "tool")
    words = re.compile(r"\b(TODO|FIXME|XXX)\b")
    return [f"{name(p)}:{n}: {line.strip()}" for p in paths
            for n, line in enumerate(p.read_text(encoding="utf-8").splitlines(), 1) if words.search(line)]


# Names that the kernels had for terms of the field: suspect, aux, dynamic scheduler, fence, bf16.
PRIVATE_WORDS = re.compile(r"doubtful|beside|drawn|settle|brain", re.IGNORECASE)
# Private or archaic words, and turned clauses. Say: suspect, aux, load, broadcast, static or dynamic, fence, bf16, recompute, next to, together,
# immediately, again, reported, whole; subject, verb, object.
PRIVATE_TEXT = re.compile(
    r"\b(doubtful|beside|settles?|brain|brings?|brought|told|dealt|drawn|whoever|handful|the way back|side by side|under way|hardly ever|"
    r"knows nothing|gives? back|given back|as (?:it|they) lies?|so-manieth|anew|likewise|whence|wherefore|thereof|lest|forth|nought|at once|"
    r"once more|in force|astray|second-level cache)\b|(?-i:(?:^|[.;:] )(?:Of|So does|What lies|Behind) )", re.IGNORECASE)


def script_comments(path: Path, text: str) -> list[tuple[int, str]]:
    """Comments and docstrings of a script or of a meson.build."""
    if path.suffix != ".py":
        return [(n, m[1]) for n, line in enumerate(text.splitlines(), 1) if (m := re.search(r"(?:^|\s)#(?!!) ?(.*)", line))]
    found = [(t.start[0], t.string) for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (doc := ast.get_docstring(node, clean=False)) is not None:
            found += [(node.body[0].lineno + n, line) for n, line in enumerate(doc.splitlines())]
    return found


def comments_of(path: Path) -> list[tuple[int, str]]:
    """Line number and text of each comment line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix not in CODE:
        return script_comments(path, text)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.search(r"//+<? ?(.*)", re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', line))
        if match:
            found.append((number, match[1]))
    return found


def strings_of(path: Path) -> list[tuple[int, str]]:
    """Line number and text of each string in C++: errors, help, names of test cases."""
    return [(number, match[1]) for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r"//[^\n]*|#include.*", "", line)) if " " in match[1]]


def kernels_use_terms_of_the_field() -> list[str]:
    """Names in the code included."""
    return [f"{name(p)}:{n}: a private word: {line.strip()}" for p in files_under("src/cuda", "tests/cuda")
            for n, line in enumerate(p.read_text(encoding="utf-8").splitlines(), 1) if PRIVATE_WORDS.search(line)]


def comments_are_plain() -> list[str]:
    """In sources, scripts and meson.build, of every folder; and the strings of C++."""
    problems = []
    for path in (p for p in written() if p != Path(__file__).resolve()):
        texts = comments_of(path) + (strings_of(path) if path.suffix in CODE else [])
        problems += [f"{name(path)}:{n}: a private word or a turned clause: {text}" for n, text in texts if PRIVATE_TEXT.search(text)]
    return problems


def pages_are_plain() -> list[str]:
    """Every page but tables of records (docs/benchmarks). A kernel's page has at most 100 lines, docs/benchmarks.md 40 kB."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    problems = []
    for page in sorted(p for p in pages if p.parent.name != "benchmarks"):
        lines = page.read_text(encoding="utf-8").splitlines()
        problems += [f"{name(page)}:{n}: a private word: {line.strip()}" for n, line in enumerate(lines, 1) if PRIVATE_TEXT.search(line)]
        if page.parent.name == "kernels" and len(lines) > 100:
            problems.append(f"{name(page)} has {len(lines)} lines; ladders belong in docs/kernels/history")
    if (size := (ROOT / "docs/benchmarks.md").stat().st_size) > 40_000:
        problems.append(f"docs/benchmarks.md has {size} bytes; past 40000 its tables belong in docs/benchmarks")
    return problems


# The rooms of src/ from the lowest up, as docs/architecture.md draws them. Rooms of one line do not know each other.
ROOMS = [["tensor"], ["conv"], ["device"], ["cpu", "cuda"], ["autograd"], ["ops"], ["layers"], ["optim"], ["io"], ["networks", "distributed"]]


def includes_point_down() -> list[str]:
    """A room includes itself and what is below it, and every folder of src/ is a room."""
    level = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
    problems = [f"src/{p.name} is in no line of ROOMS" for p in (ROOT / "src").iterdir() if p.is_dir() and p.name not in level]
    for room, own in level.items():
        for path in files_under(f"src/{room}"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*[<"]([^">]*)[">]', line)
                target = match[1].removeprefix("polyphase/") if match else ""
                if target.startswith("."):  # from the file's own folder
                    target = (path.parent / target).resolve().relative_to(ROOT / "src").as_posix()
                other = target.split("/")[0]
                if "/" in target and other != room and level.get(other, -1) >= own:
                    problems.append(f"{name(path)}:{number}: {room} includes {other}: {line.strip()}")
    return problems


# The rooms of src/cuda from the lowest up. A room includes itself and what is below it. A tuple is one room in two folders; a star
# stands for the folders there, a room each: no kernel includes another one.
CONV, TENSOR_CORE = "cuda/conv", "cuda/conv/tensor_core"
CUDA_ROOMS = [
    ["cuda/ptx"], [("cuda/runtime", "cuda/memory")], ["cuda/kernel"], ["cuda/elementwise"], ["cuda/length"],
    ["cuda/reduce", "cuda/optimizers"], ["cuda/linear"], [f"{CONV}/epilogue"],
    [f"{TENSOR_CORE}/operand"], [f"{TENSOR_CORE}/pipeline"], [f"{TENSOR_CORE}/recompute"],
    [f"{CONV}/direct", f"{CONV}/depthwise", f"{CONV}/gemm", f"{TENSOR_CORE}/both_in_shared/*", f"{TENSOR_CORE}/source_in_registers/*",
     f"{TENSOR_CORE}/weights_in_registers/*", f"{TENSOR_CORE}/residual_unit", f"{TENSOR_CORE}/wgrad"],
    [f"{TENSOR_CORE}/choice"], [f"{CONV}/choice"]]
# Headers that stand above rooms: interfaces, and what all kernels share. Their sources put the rooms together.
CUDA_SHARED = {"cuda", CONV, TENSOR_CORE}


def cuda_room(folder: str) -> tuple[int, str] | None:
    """Level and name of the room that a folder of src/ is in; nothing for CUDA_SHARED."""
    if folder in CUDA_SHARED:
        return None
    for level, rooms in enumerate(CUDA_ROOMS):
        for room in rooms:
            for part in room if isinstance(room, tuple) else (room,):
                star = part.endswith("/*")
                if match := re.match(re.escape(part.removesuffix("/*")) + ("/[^/]+" if star else "") + r"(?=/|$)", folder):
                    return level, room[0] if isinstance(room, tuple) else match.group()
    return len(CUDA_ROOMS), folder  # a folder that the list lacks


def cuda_includes_point_down() -> list[str]:
    problems = []
    for path in files_under("src/cuda"):
        folder = path.parent.relative_to(ROOT / "src").as_posix()
        own = cuda_room(folder)
        if own is not None and own[0] == len(CUDA_ROOMS) and not folder.endswith(("_registers", "_shared")):
            problems.append(f"{name(path)} is in no room of CUDA_ROOMS")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*"(.*)"', line)
            if own is None or match is None:
                continue
            target = (path.parent / match[1]).resolve() if match[1].startswith(".") else ROOT / "src" / match[1]
            other = cuda_room(target.parent.relative_to(ROOT / "src").as_posix()) if (ROOT / "src/cuda") in target.parents else None
            if other is not None and other != own and other[0] >= own[0]:
                problems.append(f"{name(path)}:{number}: {own[1]} includes {other[1]}: {line.strip()}")
    return problems


def folders_are_small() -> list[str]:
    problems = []
    for folder in sorted({p.parent for p in files_under(*PROGRAMS)}):
        most = 25 if KERNELS in (folder, *folder.parents) else 40
        count = sum(p.suffix in CODE for p in folder.iterdir())
        if count > most:
            problems.append(f"{name(folder)} has {count} files; past {most} it is two rooms")
    return problems


def blocks(path: Path) -> list[tuple[int, int, str]]:
    """First and last line of what stands in braces at one indentation, and how it begins, as clang-format writes it."""
    found, open_at = [], {}
    for number, line in enumerate(code_of(path).split("\n"), 1):
        indent = len(line) - len(line.lstrip())
        if line.strip() and not line.startswith("#"):
            open_at = {at: opened for at, opened in open_at.items() if at <= indent}
            if re.match(r"\s*}", line) and indent in open_at:
                first, text = open_at.pop(indent)
                found.append((first, number, text))
            if not re.match(r"\s*[}\]):]", line):
                open_at[indent] = (number, line.strip())
    return found


def functions_are_short() -> list[str]:
    problems = []
    for path in files_under(*PROGRAMS):
        for first, last, text in blocks(path):
            if last - first >= 120 and not re.match(r"(namespace|class|struct|enum|template|extern|union)\b", text):
                problems.append(f"{name(path)}:{first}: {last - first + 1} lines: {text[:80]}")
    return problems


def kernels_take_few_parameters() -> list[str]:
    most, problems = 12, []
    for path in files_under("src/cuda"):
        text = code_of(path)
        for match in re.finditer(r"__global__ void\s*(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\(", text):
            depth, count, at = 1, 1, match.end()
            while depth > 0:
                char = text[at]
                depth += (char in "(<[{") - (char in ")>]}" and text[at - 1] != "-")
                count += char == "," and depth == 1
                at += 1
            if count > most:
                problems.append(f"{name(path)}: {match[1]} takes {count} parameters")
    return problems


RULES = [every_source_has_a_test, every_test_has_a_source, every_file_is_built, files_are_small, headers_are_guarded,
         library_is_quiet, asm_has_one_room, nothing_is_unfinished, kernels_use_terms_of_the_field, comments_are_plain, pages_are_plain,
         includes_point_down, cuda_includes_point_down, folders_are_small, functions_are_short, kernels_take_few_parameters]


def main() -> int:
    failed = 0
    for rule in RULES:
        problems = rule()
        failed += bool(problems)
        for problem in problems:
            print(f"{rule.__name__}: {problem}")
    print(f"test cases: {len(RULES) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


sys.exit(main())
