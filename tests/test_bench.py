"""One command runs all benchmarks, and renews the parts of the document that they made."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.__main__ import BENCHMARKS, part, renewed
from tests.lab.daemons import until
from tests.lab.processes import gone

NEED_MORE = {"real_gpu", "recording", "replay"}
"""A GPU; pipes or a terminal that another benchmark gives it."""


def test_every_benchmark_is_run_by_the_one_command() -> None:
    modules = (Path(__file__).parent / "bench").glob("[a-z]*.py")
    programs = {path.stem for path in modules if 'if __name__ == "__main__":' in path.read_text()}
    assert set(BENCHMARKS) == programs - NEED_MORE


def test_a_part_is_made_anew_where_it_stands_and_all_else_stays() -> None:
    document = renewed("# Performance\n\nThe prose.\n", "startup", part("startup", "100 ms"))
    document = renewed(document, "charts", part("charts", r"20 ms \1")) + "\nThe end.\n"
    again = renewed(document, "startup", part("startup", "90 ms"))
    assert again == document.replace("100 ms", "90 ms")
    assert r"20 ms \1" in again
    assert again.startswith("# Performance\n\nThe prose.\n\n<!-- bench: startup -->\n")


STARTS = """
import subprocess, sys, tempfile
from tests.bench.program import run_program
def main():
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(folder + "\\n")  # a line at once: two programs write to one pipe
        with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], start_new_session=True) as waits:
            sys.stdout.write(f"{waits.pid}\\n")
run_program(main)
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_ended_ends_what_it_has_started(ending: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, *pids = (process.stdout.readline().strip() for _ in range(3))
        process.send_signal(ending)
        process.send_signal(ending)
        process.stdout.read()
    assert process.returncode == 128 + ending
    assert not Path(folder).exists()
    until(lambda: all(gone(int(pid)) for pid in pids), "what it has started has ended")
