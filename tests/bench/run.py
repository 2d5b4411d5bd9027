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

from tests.bench.program import run_program
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
WRITE_ROUNDS = {"file": 8, "pipe": 8, "terminal": 2}
SLOW = ("gpualert", "jobgpumonitor")
"""Started in every tenth round."""
LINE = "step 1234567 loss 2.34567890 lr 0.00012345 grad_norm 1.2345 tokens/s 123456.7\n"
LINES = f"import sys\nfor _ in range({OUTPUT // len(LINE)}): sys.stdout.write({LINE!r})"
WRITES = {
    "the fastest": ["dd", "if=/dev/zero", "bs=65536", f"count={OUTPUT // 65536}", "status=none"],
    "text lines": [PYTHON, "-I", "-S", "-c", LINES],
}
"""What writes OUTPUT. A training writes lines; dd only copies zeros, so that the start of a wrapper counts most."""


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


def seconds(into: str, copy: Path, *commands: list[str]) -> list[float]:
    """For each command, the least time in which it writes OUTPUT. In turn: what one has written into a file, the disk
    still writes while the next one runs."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(WRITE_ROUNDS[into]):
        for argv, taken in zip(commands, times, strict=True):
            started = time.perf_counter()
            write(argv, into)
            taken.append(time.perf_counter() - started)
            copy.unlink(missing_ok=True)
    return [min(taken) for taken in times]


def write(argv: list[str], into: str) -> None:
    """Run a command whose output is a file, or a pipe or a terminal that somebody reads."""
    if into == "file":
        with tempfile.TemporaryFile() as out:
            subprocess.run(argv, stdout=out, check=True)
        return
    ours, theirs = os.pipe() if into == "pipe" else os.openpty()
    with subprocess.Popen(argv, stdout=theirs) as process:
        os.close(theirs)
        try:
            while os.read(ours, 1 << 16):
                pass
        except OSError:
            pass  # a terminal that nobody has open any more
    os.close(ours)
    assert process.returncode == 0


def outputs(ours: list[str], folder: Path) -> list[float]:
    """Show what OUTPUT costs. Returns for text lines into a file and into a pipe how many times as long it takes."""
    rows, ratios = [], []
    for into in WRITE_ROUNDS:
        for name, argv in WRITES.items():
            copy = folder / "copy"
            copying = [*ours[:-1], "--log", str(copy), "--", *argv]
            bare, wrapped, copied = seconds(into, copy, argv, [*ours, *argv], copying)
            more = f"{(wrapped - bare) * 1e3:.0f} ms"
            rows.append([into, name, f"{bare * 1e3:.0f} ms", f"{wrapped / bare:.2f}x", more, f"{copied / bare:.2f}x"])
            if name == "text lines" and into != "terminal":
                ratios.append(wrapped / bare)
    show(f"{OUTPUT // 10**6} MB of output", ["into", "what writes", "bare", "trainmon-run", "more", "with --log"], rows)
    return ratios


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
        ratios = outputs(ours, Path(temporary))
        memory, spent = waiting(ours)
    over_pass, over_bare = least["trainmon-run"] - least[PASS], least["trainmon-run"] - least["bare"]
    print(f"over {PASS}: {over_pass:.1f} ms (goal: {OVER_PASS:g}); over bare: {over_bare:.1f} ms (goal: {OVER_BARE:g})")
    print(f"200 MB of text lines: at most {max(ratios):.2f} times bare (goal: {SLOWER:g})")
    print(f"while it waits: {memory / 2**20:.1f} MiB (goal: {MEMORY >> 20}), {spent:.2f} s of processor time")
    goals = (over_pass <= OVER_PASS, over_bare <= OVER_BARE, max(ratios) <= SLOWER, memory <= MEMORY, spent == 0.0)
    return 0 if all(goals) else 1


if __name__ == "__main__":
    run_program(main)
