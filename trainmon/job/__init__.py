"""What people add to their jobs: trainmon-run, a wrapper, and trainmon_hooks, for the training loop.

Files of the standard library alone, for old Pythons too."""

from __future__ import annotations

import base64
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import NoReturn

FOLDER = Path(__file__).parent
CALLBACKS = "# ---- callbacks of frameworks"
# Later formats mark what else the writing process refers to, so that two processes write different bytes.
MARSHAL_VERSION = 2


ONE_FILE = """\
#!/usr/bin/env -S python3 -I -S
\"\"\"trainmon-run: run a command unchanged, and keep a receipt of how it began and ended.

PARTS is its source. CODE is the same, compiled by Python {version}; every other version compiles the source.
\"\"\"

import binascii
import marshal

PARTS = {{{parts}
}}
MAGIC, CODE = "{magic}", {{{codes}
}}


def load(name):
    if __import__("_frozen_importlib_external").MAGIC_NUMBER.hex() == MAGIC:
        return marshal.loads(binascii.a2b_base64(CODE[name]))
    return PARTS[name]


exec(load("trainmon_run"))
"""


def run_script() -> str:
    """trainmon-run as one file. To compile it takes half of its time."""
    texts = {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*run*.py"))}
    assert not any("'''" in text for text in texts.values())
    codes = {
        name: marshal.dumps(compile(text, f"{name}.py", "exec", 0, True, 2), MARSHAL_VERSION)
        for name, text in texts.items()
    }
    return ONE_FILE.format(
        version=".".join(map(str, sys.version_info[:2])),
        parts="".join(f"\n    {name!r}: r'''{text}'''," for name, text in texts.items()),
        magic=MAGIC_NUMBER.hex(),
        codes="".join(f"\n    {name!r}: {base64.b64encode(code).decode()!r}," for name, code in codes.items()),
    )


def hooks_module() -> str:
    """trainmon_hooks as one file: the hooks, then the callbacks."""
    callbacks = (FOLDER / "hooks_callbacks.py").read_text("utf-8")
    return f"{(FOLDER / 'trainmon_hooks.py').read_text('utf-8')}\n\n{callbacks[callbacks.index(CALLBACKS) :]}"


def main() -> NoReturn:
    """The entry point `trainmon-run`: become the script, in an interpreter that starts quickly."""
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(FOLDER / "trainmon_run.py"), *sys.argv[1:]])
