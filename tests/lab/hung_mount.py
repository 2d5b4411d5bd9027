"""A dead mount without root or FUSE: an LD_PRELOAD library whose file calls under one folder do not return."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True, slots=True)
class HungMount:
    """A folder that is dead, for processes started with `env`, from `hang` to `recover`."""

    folder: Path
    library: Path
    flag: Path

    @classmethod
    def at(cls, folder: Path, scratch: Path) -> HungMount:
        """Build the library in scratch; the folder still answers."""
        folder.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise RuntimeError("a C compiler is needed for the hung mount: apt-get install gcc libc6-dev")
        library = scratch / "hung_mount.so"
        argv = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(argv, check=True, timeout=60)
        return cls(folder.resolve(), library, scratch / "hung_mount.hangs")

    @property
    def env(self) -> dict[str, str]:
        """The environment of a process that shall see the mount."""
        mine = {"LD_PRELOAD": str(self.library), "HUNG_PREFIX": str(self.folder), "HUNG_WHILE": str(self.flag)}
        return {**os.environ, **mine}

    def hang(self) -> None:
        self.flag.touch()

    def recover(self) -> None:
        """Calls that hang now return within 20 ms."""
        self.flag.unlink(missing_ok=True)
