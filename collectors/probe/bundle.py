"""What is sent to a node: the command line that starts the probe, its code, and its specs.

The node begins with a greeting. Then its standard input has the code (or the fallback script, up to `#END`), JSON
specs, and an empty line every 20 s as the lease. No part of the command line holds a newline, a quote or a `!`, so
every login shell passes it on unchanged.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from collectors.probe import boot
from trainmon.lib import TrainmonError
from trainmon.model import Spec

LEASE = b"\n"
"""Sent every 20 s. After 60 s without a byte the probe ends, with all its processes."""

FOLDER = Path(__file__).parent
FIRST = "boot"
HERE_ONLY = {"bundle", "__init__", FIRST}
"""The names of files that are not sent as modules."""
FALLBACK = (FOLDER / "fallback_spec.sh", FOLDER / "fallback.sh")

METRICS = ("files.metrics", "files.metric_rows", "files.metric_formats", "files.wandb_records")
WITH_SPEC = dict.fromkeys(METRICS, "wandb") | {"gpu.ranks": "ranks"}
"""Modules that not every node needs: they come with a spec that has this field, not with the code."""

GREETING = b"#probe "
"""The start of the node's first line. A shell adds `sh`."""

START_HINT = "try: ssh {host} {python} -V; without a terminal, a login script must not exit or wait"
"""What to do about a probe that does not start."""

LOADER = (
    "import os,sys,io,binascii;"
    "os.write(1,sys.argv[1].encode()+bytes([32,10]));"
    "s=io.BufferedReader(io.FileIO(0,closefd=False),1);"
    "p=s.read(int(s.readline())).split();"
    "exec(binascii.a2b_base64(p[0]))"
)
"""Reads exactly the code, and no byte of the specs after it: with a 1-byte buffer, read(n) requests n bytes at once."""

NO_PYTHON = ""
"""The interpreter name that selects the fallback script: for a Python that fails at its start (broken, before 3.6)."""

SHELL = (
    'renice -n 19 -p $$ >/dev/null 2>&1; if command -v "$1" >/dev/null 2>&1; then '
    'exec "$1" -I -S -B -X no_debug_ranges -c "$2" "$3"; fi; echo "$3 sh"; n=$(printf "\\012x"); n=${n%x}; script=; '
    'while IFS= read -r line; do case $line in "#END") break;; esac; script="$script$line$n"; done; '
    'unset line n; shift 3; eval "$script"'
)
"""Becomes Python if there is one, else runs the fallback script. A test run of Python would cost a start."""

NAME = re.compile(r"(?:def|class)\s+(\w+)|(\w+)\s*=[^=]|(?:from [\w.]+ )?import (\w+)$", re.MULTILINE)
IDENTIFIER = re.compile(r"\w+")
STUBBED = re.compile(r"^(?:from \w+ )?import (threading|string|wraps)$", re.MULTILINE)
"""The imports that stdlib.py replaces: the only changed lines of pynvml."""

FOR_READERS = re.compile(r'(?:^ *|  )# .*$|^( *)"""[^"]*"""$| -> (?:"[^"\n]*"|\w+)(?=:$)', re.MULTILINE)
"""What is not sent: comments, docstrings, and the types of results. The numbers of the lines stay."""

HEAD = re.compile(r"^( *)def .*(?:(?<=\()(?:\n\1 .*)+\n\1\))?", re.MULTILINE)
ARGUMENT = re.compile(r'(?<=\w): (?:"[^"\n]*"|[\w.]+)(?=[,)\n]| =)')
"""The head of a function, and in it the type of an argument. That is not sent, either."""

INDENT = re.compile(r"^(?: {4})+", re.MULTILINE)
"""Each level is sent as one space."""


BLOCK = re.compile(r"^(?=[^\s#)\]}])", re.MULTILINE)
USED = re.compile(r"\bpynvml\.(\w+)|\bnvml\.(\w+)|\"(nvml\w+)\"")


def command(python: str = "python3") -> list[str]:
    """The argv that starts the probe on a node: a POSIX shell that becomes Python, or the fallback script."""
    return ["sh", "-c", SHELL, "trainmon-probe", python, LOADER, GREETING.decode().strip()]


def payload(greeting: bytes) -> bytes:
    """The first bytes for a node with this greeting: the code, or the fallback script.

    The code is its source: compiled, it would be twice as long, to save the node 15 ms.
    """
    return _script() if greeting.removeprefix(GREETING).strip() == b"sh" else _code()


@functools.cache
def _script() -> bytes:
    return "".join(path.read_text("utf-8") for path in FALLBACK).encode() + b"\n#END\n"


@functools.cache
def _code() -> bytes:
    """The length of a line, and the line: boot, then the modules as `name NUL text NUL …`."""
    modules = {boot.PREFIX + name: text for name, text in _texts().items() if name not in WITH_SPEC}
    modules["pynvml"] = pruned_pynvml(text for text in modules.values() if "nvml" in text)
    line = base64.b64encode((FOLDER / f"{FIRST}.py").read_bytes()) + b" " + base64.b64encode(_packed(modules)) + b"\n"
    return b"%d\n" % len(line) + line


def _packed(modules: Mapping[str, str]) -> bytes:
    """Modules by name as `name NUL text NUL …`, compressed."""
    text = "\0".join(part for module in modules.items() for part in module)
    return zlib.compress(text.encode(), 9)


def spec_line(spec: Spec) -> bytes:
    """The spec as one line. It is sent after the payload, and again whenever it changes."""
    line = msgspec.json.encode(spec)
    if wanted := tuple(name for name, field in WITH_SPEC.items() if getattr(spec, field)):
        line = line[:-1] + b',"modules":"' + _modules_of_spec(wanted) + b'"}'
    return line + b"\n"


@functools.cache
def _modules_of_spec(wanted: tuple[str, ...]) -> bytes:
    return base64.b85encode(_packed({boot.PREFIX + name: text for name, text in _texts().items() if name in wanted}))


def _texts() -> dict[str, str]:
    return {name: without_docs(path.read_text("utf-8")) for name, path in sent().items()}


def without_docs(text: str) -> str:
    """Code without what is for readers: a body that has only one still needs a statement."""
    text = FOR_READERS.sub(lambda one: "" if one[1] is None else f"{one[1]}0" + "\n" * one[0].count("\n"), text)
    text = HEAD.sub(lambda head: ARGUMENT.sub("", head[0]), text)
    return INDENT.sub(lambda one: " " * (len(one[0]) // 4), text)


def sent() -> dict[str, Path]:
    """The modules that are sent, with the code or with a spec, by their names inside collectors.probe: `gpu.nvml`."""
    paths = (path for path in sorted(FOLDER.rglob("*.py")) if path.stem not in HERE_ONLY)
    return {".".join(path.relative_to(FOLDER).with_suffix("").parts): path for path in paths}


def pruned_pynvml(users: Iterable[str]) -> str:
    """NVIDIA's pynvml without remarks, and the definitions that the probe does not use: a tenth of its text, unchanged.

    All of pynvml takes 30 MiB on the node. A definition is kept if a kept one contains its name.

    Raises:
        TrainmonError: when pynvml is not installed.
    """
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise TrainmonError("NVIDIA's pynvml is not installed here", hint="pip install nvidia-ml-py")
    blocks = BLOCK.split(Path(spec.origin).read_text("utf-8"))
    defined: dict[str, list[int]] = {}
    kept = {0}
    decorated: list[int] = []
    for number, block in enumerate(blocks):
        if block.startswith("@"):
            decorated.append(number)
            continue
        found = NAME.match(block)
        name: str = found.group(found.lastindex or 0) if found else ""
        defined.setdefault(name, []).extend([*decorated, number])
        if not name or name.startswith("NVML_ERROR_"):
            kept.add(number)
        decorated = []
    wanted = {name for text in users for found in USED.findall(text) for name in found if name}
    wanted.update(name for number in kept for name in IDENTIFIER.findall(blocks[number]))
    while wanted:
        name = wanted.pop()
        for number in set(defined.get(name, ())) - kept:
            kept.add(number)
            wanted.update(one for one in IDENTIFIER.findall(blocks[number]) if one in defined)
    text = blocks[0] + re.sub(r"(?m)^ *#.*\n", "", "".join(blocks[number] for number in sorted(kept - {0})))
    return STUBBED.sub(r"from collectors.probe.stdlib import \1", text)
