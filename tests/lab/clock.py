"""A process whose wall clock a test sets, as a person or a time server does; its steady clock goes on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class SetClock:
    """What to put into a program's environment, and the setting."""

    def __init__(self, scratch: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise RuntimeError("a C compiler is needed for the clock that is set: apt-get install gcc libc6-dev")
        library = scratch / "clock.so"
        argv = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(argv, check=True, timeout=60)
        self._file = scratch / "clock"
        self.ahead(0)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(self._file)}

    def ahead(self, seconds: int) -> None:
        """From now on it is so far ahead of the machine's."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds}\n")
        fresh.rename(self._file)
