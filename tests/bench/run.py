"""trainmon-run, what it costs: beside tini and dumb-init, gpualert and jobgpumonitor. Run: python -m tests.bench.run

tini and dumb-init come from Debian, gpualert and jobgpumonitor from PyPI, into a temporary environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.table import show
from tests.lab import pip
from trainmon import job

PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
PASS = "python3 -I -S -c pass"
OVER_PASS, OVER_BARE = 8.0, 20.0
"""Milliseconds that the start and the end of `true` may take more than those."""
OUTPUT = 200 * 10**6
SLOWER = 1.2
MEMORY = 10 << 20
ROUNDS = 100
WRITE_ROUNDS = 8
SLOW = ("gpualert", "jobgpumonitor")
"""Started in every tenth round."""
WRITES = f"import os; data = bytes(65536)\nfor _ in range({OUTPUT // 65536}): os.write(1, data)"


def milliseconds(argv: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return (time.perf_counter() - started) * 1e3


def wrappers(folder: Path) -> dict[str, list[str]]:
    """What stands before the command."""
    script = folder / "trainmon-run"
    script.write_text(job.run_script())
    found: dict[str, list[str]] = {"bare": []}
    found |= {"trainmon-run": [PYTHON, "-I", "-S", str(script), "--receipts", str(folder / "receipts"), "--"]}
    for name in ("tini", "dumb-init"):
        if (path := shutil.which(name)) is not None:
            found[name] = [path, "--"]
    python = pip.environment(folder / "peers")
    pip.pip("--python", python, "install", "gpualert", "jobgpumonitor")
    found["gpualert"] = [str(python.parent / "gpualert"), "run", "--no-notify", "--"]
    found["jobgpumonitor"] = [str(python.parent / "jgm"), "run", "--"]
    return found


def seconds(*commands: list[str]) -> list[float]:
    """For each command, the least time in which it writes OUTPUT into a file. In turn: what one has written, the disk
    still writes while the next one runs."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(WRITE_ROUNDS):
        for argv, taken in zip(commands, times, strict=True):
            with tempfile.TemporaryFile() as out:
                started = time.perf_counter()
                subprocess.run(argv, stdout=out, check=True)
                taken.append(time.perf_counter() - started)
    return [min(taken) for taken in times]


def waiting(argv: list[str]) -> tuple[int, float]:
    """The memory of a wrapper while its command sleeps, without its second process, and its processor time in 3 s."""
    with subprocess.Popen([*argv, "sleep", "3"], stdout=subprocess.DEVNULL) as process:
        time.sleep(1.0)
        status = Path(f"/proc/{process.pid}/status").read_text()
        begun = ticks(process.pid)
        time.sleep(1.5)
        spent = ticks(process.pid) - begun
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return kilobytes * 1024, spent


def ticks(pid: int) -> float:
    """The seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """All in turn, so that a busy moment costs each the same; the minimum counts."""
    with tempfile.TemporaryDirectory() as temporary:
        found = wrappers(Path(temporary))
        cases = {PASS: [PYTHON, "-I", "-S", "-c", "pass"], **{name: [*argv, "true"] for name, argv in found.items()}}
        times: dict[str, list[float]] = {name: [] for name in cases}
        for number in range(ROUNDS):
            for name, argv in cases.items():
                if name not in SLOW or number % 10 == 0:
                    times[name].append(milliseconds(argv))
        least = {name: min(taken) for name, taken in times.items()}
        show(
            "start to exit of `true`",
            ["command", "least time"],
            [[name, f"{taken:.1f} ms"] for name, taken in least.items()],
        )
        ours = found["trainmon-run"]
        writes = [PYTHON, "-I", "-S", "-c", WRITES]
        bare, wrapped = seconds(writes, [*ours, *writes])
        memory, spent = waiting(ours)
    over_pass, over_bare = least["trainmon-run"] - least[PASS], least["trainmon-run"] - least["bare"]
    print(f"over {PASS}: {over_pass:.1f} ms (goal: {OVER_PASS:g}); over bare: {over_bare:.1f} ms (goal: {OVER_BARE:g})")
    print(f"200 MB of output into a file: {wrapped / bare:.2f} times bare (goal: {SLOWER:g})")
    print(f"while it waits: {memory / 2**20:.1f} MiB (goal: {MEMORY >> 20}), {spent:.2f} s of processor time")
    goals = (over_pass <= OVER_PASS, over_bare <= OVER_BARE, wrapped <= SLOWER * bare, memory <= MEMORY, spent == 0.0)
    return 0 if all(goals) else 1


if __name__ == "__main__":
    sys.exit(main())
