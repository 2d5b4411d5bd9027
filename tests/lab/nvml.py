"""The NVML stand-in: builds tests/lab/nvml/nvml.c once, and says what its GPUs report.

nvml = Nvml(folder).set(3, temperature=91).error(5, "*", GPU_IS_LOST)
subprocess.Popen(..., env=nvml.environment())
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from random import Random

NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
UNKNOWN = 999

SOURCE = Path(__file__).with_name("nvml") / "nvml.c"


@cache
def library() -> Path:
    """Compile the stand-in, once a process, and give the folder to put on LD_LIBRARY_PATH."""
    folder = Path(tempfile.gettempdir()) / f"trainmon-lab-{os.getuid()}-{int(SOURCE.stat().st_mtime)}"
    target = folder / "libnvidia-ml.so.1"
    if not target.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        fresh = folder / f"building-{os.getpid()}"
        try:
            subprocess.run(
                ["gcc", "-O2", "-shared", "-fPIC", "-o", str(fresh), str(SOURCE)],
                check=True,
                capture_output=True,
                text=True,
                timeout=120,
            )
        except FileNotFoundError as error:
            raise RuntimeError("the NVML stand-in needs a C compiler: apt-get install -y gcc libc6-dev") from error
        fresh.rename(target)
    return folder


class Nvml:
    """The file that drives one node's stand-in. Every change takes effect at the next NVML call."""

    def __init__(self, folder: Path, *, gpus: int = 8) -> None:
        self.path = folder / "nvml.txt"
        self.lines = [f"gpus {gpus}"]
        self.xids = 0
        self._write()

    def set(self, gpu: int | str, **fields: int) -> Nvml:
        """Numbers in NVML's own units: temperature, memory_temperature, margin, memory_total … (FIELDS in nvml.c)."""
        return self.say(*(f"set {gpu} {field} {value}" for field, value in fields.items()))

    def error(self, gpu: int | str, function: str, code: int) -> Nvml:
        return self.say(f"error {gpu} {function} {code}")

    def hang(self, gpu: int | str, function: str) -> Nvml:
        return self.say(f"hang {gpu} {function}")

    def process(self, gpu: int, pid: int, memory_mib: int, kind: str = "c", instance: int = -1) -> Nvml:
        return self.say(f"process {gpu} {pid} {memory_mib << 20} {kind} {instance}")

    def instance(self, gpu: int, gi: int, profile: str, total_mib: int, used_mib: int, ci: int = 0) -> Nvml:
        """A MIG instance of a GPU with MIG on."""
        return self.say(f"instance {gpu} {gi} {ci} {total_mib << 20} {used_mib << 20} {profile}")

    def xid(self, gpu: int, code: int) -> Nvml:
        self.xids += 1
        return self.say(f"xid {self.xids} {gpu} {code}")

    def plant(self, seed: int) -> int:
        """One GPU has a link that is worse than those of the others; returns its index. All have some noise."""
        random = Random(seed)
        for index in range(8):
            self.set(index, pcie_replays=random.randrange(20), nvlink_errors=random.randrange(5))
        odd = random.randrange(8)
        self.set(odd, **random.choice(({"pcie_width": 8}, {"pcie_width": 4}, {"pcie_gen": 3}, {"nvlinks_up": 17})))
        return odd

    def say(self, *lines: str) -> Nvml:
        self.lines += lines
        self._write()
        return self

    def clear(self, *, gpus: int = 8) -> Nvml:
        """Forget everything: healthy GPUs again."""
        self.lines = [f"gpus {gpus}"]
        self._write()
        return self

    def environment(self) -> dict[str, str]:
        """Ours, with the stand-in in it."""
        return {**os.environ, "LD_LIBRARY_PATH": str(library()), "TRAINMON_LAB_NVML": str(self.path)}

    def _write(self) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(self.lines) + "\n")
        fresh.rename(self.path)
