"""The first code that runs on a node. It makes the sent modules importable, then starts main.

A child process unpacks and compiles the modules: its memory is then freed. Modules that most nodes do not need are
compiled when they are imported. `p` is what the loader has read, two words: this source in base64; and the modules, as
`name NUL text NUL …`, compressed and in base64.
"""

import binascii
import marshal
import os
import sys

PREFIX = "collectors.probe."

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

COMPILED_LATER = (
    "gpu.smi", "gpu.driver_text", "gpu.amd", "gpu.rocm_smi", "files.logs", "files.lines", "files.switches",
    "files.checkpoints", "files.contents", "files.receipts",
)  # fmt: skip
"""Modules for nvidia-smi, for AMD and for files that are read: compiling them takes 10 ms, a third of the total."""


def in_child(function: "Callable[[], Any]") -> "Any":
    """The result of a function that runs in a child process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(marshal.dumps(function()))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return marshal.loads(data)


def compiled(name: str, text: bytes) -> bytes:
    """The marshalled code of one module."""
    return marshal.dumps(compile(text, "probe:" + name, "exec", 0, True, 2))


def unpacked(packed: bytes) -> "Any":
    """Marshalled code by module name, and the source of the modules that are compiled later."""
    import zlib

    parts = zlib.decompress(binascii.a2b_base64(packed)).split(b"\0")
    texts = {name.decode(): text for name, text in zip(parts[::2], parts[1::2])}  # noqa: B905 strict= needs 3.10
    later = {name: text for name, text in texts.items() if name[len(PREFIX) :] in COMPILED_LATER}
    return {name: compiled(name, text) for name, text in texts.items() if name not in later}, later


PACKAGES = ("collectors", "collectors.probe", "collectors.probe.files", "collectors.probe.gpu")


class SentModules:
    """Finds and loads the modules that came over standard input, by their usual import names."""

    def __init__(self, codes: "dict[str, bytes]", texts: "dict[str, bytes]") -> None:
        self.codes = codes
        self.texts = texts

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name in self.codes or name in self.texts:
            return type(sys.__spec__)(name, self, is_package=name in PACKAGES)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: object) -> None:
        """Called by importlib: a module is created as usual."""

    def exec_module(self, module: object) -> None:
        name = module.__name__  # type: ignore[attr-defined]
        if name in self.texts:
            self.codes[name] = in_child(lambda: compiled(name, self.texts[name]))
            del self.texts[name]
        if name not in PACKAGES:
            exec(marshal.loads(self.codes[name]), module.__dict__)


def install(packed: bytes) -> None:
    """Unpack and compile the modules, and make them importable."""
    codes, texts = in_child(lambda: unpacked(packed))
    codes.update(dict.fromkeys(PACKAGES, b""))
    sys.meta_path.insert(0, SentModules(codes, texts))  # type: ignore[arg-type]


if "p" in globals():
    install(globals().pop("p")[1])
    from collectors.probe import main

    main.main()
