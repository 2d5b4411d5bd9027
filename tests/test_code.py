"""The code itself: lint, format, types and who may import whom, each a test of its own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainmon import __version__

ROOT = Path(__file__).parent.parent
PATIENCE = 400.0
"""Seconds; a first mypy on two busy cores has taken 70."""


def passes(*argv: str) -> None:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}{done.stderr}"


def tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def test_ruff_finds_nothing() -> None:
    passes(tool("ruff"), "check", ".")


def test_every_file_is_formatted() -> None:
    passes(tool("ruff"), "format", "--check", ".")


def test_every_type_is_right() -> None:
    passes(tool("mypy"))


def test_imports_keep_the_contracts() -> None:
    passes(tool("lint-imports"))


def contract(name: str) -> dict[str, Any]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(one for one in contracts if one["name"] == name)


def test_every_package_of_the_core_has_its_layer() -> None:
    named = {name.strip() for layer in contract("Imports point down")["layers"] for name in layer.split("|")}
    folders = {f"trainmon.{path.parent.name}" for path in (ROOT / "trainmon").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "trainmon").glob("*.py")}
    assert folders - named == set()
    assert modules == {"__init__", "__main__"}


def test_a_module_that_says_it_is_pure_is_held_to_it() -> None:
    pure = tuple(contract("Decisions are pure")["source_modules"])
    says_so = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if is_said_pure(path)]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in says_so}
    views = {name for name in names if name.startswith("tui.")}  # no I/O by the contract of the whole TUI
    assert len(names) > 80
    assert {name for name in names - views if not f"{name}.".startswith(tuple(f"{one}." for one in pure))} == set()


def is_said_pure(path: Path) -> bool:
    return " Pure." in f" {(ast.get_docstring(ast.parse(path.read_text())) or '').partition(chr(10))[0]}"


def test_a_folder_is_a_table_of_contents() -> None:
    """At most 13 entries besides __init__ and __main__."""
    crowded = {}
    for package in PACKAGES:
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
            entries = {path.name for path in folder.iterdir() if not path.name.startswith("__")}
            if len(entries) > 13:
                crowded[str(folder.relative_to(ROOT))] = len(entries)
    assert crowded == {}


def test_the_version_is_the_same_in_both_places() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


PACKAGES = ("trainmon", "collectors", "tui")


def test_every_file_of_the_packages_is_installed_with_them() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    installed = {
        path
        for package, patterns in setuptools["package-data"].items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    files = {path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()}
    assert {path for path in files if path.suffix not in (".py", ".pyc")} - installed == set()


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {folder for folder in folders if not (folder / "__init__.py").exists()} == set()


KEPT = (".ci", "collectors", "docs", "screenshots", "tests", "trainmon", "tui")
OF_A_MACHINE = re.compile(rb"(?<![\w.~-])/(?:work|root|Users|home/(?:runner|ubuntu|vagrant|user))/|/tmp/pytest-o[f]-")
"""Where those who develop have checkouts and homes. Tests have people of their own: /home/ana."""


def test_no_file_names_a_path_of_a_machine_on_which_it_was_made() -> None:
    files = [path for folder in KEPT for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.glob("*.*") if path.is_file() and path.name != ".git"]
    texts = {path: path.read_bytes() for path in files if "__pycache__" not in path.parts}
    named = {str(path): found[0] for path, text in texts.items() if (found := OF_A_MACHINE.search(text)) is not None}
    assert named == {}
    if len(ROOT.parts) > 2:  # of a checkout in /src, the path says nothing of the machine
        assert [str(path) for path, text in texts.items() if str(ROOT).encode() in text] == []


SPACED = re.compile(r"(?:\d|}|%[dgf]) (?:s|min|h)\b")


def strings(path: Path) -> list[str]:
    """What a person reads of a file: its lines, or of code the strings that are no docstrings."""
    if path.suffix != ".py":
        return [line for line in path.read_text().splitlines() if path.suffix != ".sh" or not line.startswith("#")]
    nodes = list(ast.walk(ast.parse(path.read_text())))
    documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    read = (node for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in documents)
    return [ast.unparse(node) for node in read if isinstance(node, ast.JoinedStr) or isinstance(node.value, str)]


def test_durations_have_one_form() -> None:
    files = [path for folder in (*PACKAGES, "docs") for path in (ROOT / folder).rglob("*.[pms][ydh]")]
    files += ROOT.glob("*.md")
    assert [f"{path}: {text}" for path in files for text in strings(path) if SPACED.search(text)] == []


FIRST_USE = re.compile(r"msgspec\.json\.decode\([^\n]*type=")
ALONE = "child.py"
"""What runs in a process with one thread."""


def test_threads_share_decoders() -> None:
    files = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py") if path.name != ALONE]
    assert [str(path) for path in files if FIRST_USE.search(path.read_text())] == []


SENTENCES = frozenset({"why", "error", "problem", "outcome", "hint", "missed"})
READ_BY = frozenset({
    "startswith", "endswith", "find", "rfind", "index", "partition", "rpartition", "split", "search", "match",
    "fullmatch", "findall", "finditer", "sub",
})  # fmt: skip
READ_BACK = {"switch.why": "the first line of a switch file", "hooks.why": "of a file that is shipped alone"}
"""What has the name of a sentence and is data."""


def test_sentences_are_for_people() -> None:
    """Code that searches a sentence breaks when its words change: it compares a code beside it (why_code), or asks what
    the words of a probe mean (says in trainmon.model)."""
    files = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    found = {f"{path}:{node.lineno}": ast.unparse(node) for path in files for node in read_sentences(path)}
    assert found == {}


def read_sentences(path: Path) -> Iterator[ast.expr]:
    """Where a file looks for words in a sentence, or cuts it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            read = node.comparators
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READ_BY:
            read = [node.func.value, *node.args]
        else:
            continue
        if any(is_sentence(one) for one in read):
            yield node


def is_sentence(node: ast.expr) -> bool:
    """`run.why`, `(disk.error or "")`."""
    if isinstance(node, ast.BoolOp):
        return any(is_sentence(one) for one in node.values)
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES and ast.unparse(node) not in READ_BACK
