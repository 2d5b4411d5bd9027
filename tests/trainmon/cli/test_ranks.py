"""ranks: where the ranks of a run are, and which of them holds it up, for people and for scripts."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from trainmon.cli.snapshot import StateWatcher, print_looks
from trainmon.lib import CommandFailed
from trainmon.model import SILENT, RankLook
from trainmon.runtime.demo import DemoMonitor
from trainmon.runtime.looks import Nodes, Request

HUNG, GOES_ON = "llm-7b", "moe-1b"


def test_ranks_of_a_run_that_hangs_that_goes_on_and_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with DemoMonitor("hang") as monitor, closing(StateWatcher(monitor.subscribe)) as watcher:
        assert watcher.wait_for(lambda state: HUNG in state.runs and state.runs[HUNG].verdict in SILENT, 60.0)
        assert watcher.wait_for(lambda state: bool(state.runs[HUNG].looks), 60.0)
        while (status := print_looks(monitor, HUNG, as_json=True)) == 3:  # its first look by itself is not over
            capsys.readouterr()
        found = json.loads(capsys.readouterr().out)
        (look,) = found["looks"]
        assert (status, found["run"], found["ranks"]["ranks"]) == (1, HUNG, 32)
        assert look["named"] == [{"rank": 24, "node": "gpu-010", "gpu": 0}]
        assert look["source"] == "nccl-ras"
        assert "; rank 24 (gpu-010 GPU 0) has been at " in look["summary"]
        assert print_looks(monitor, GOES_ON, as_json=False) == 0
        head, columns, first, *_, said, version = capsys.readouterr().out.splitlines()
        assert head == "16 ranks, numbered by slurm"
        assert (columns.split(), first.split()) == (["NODE", "RANKS", "GPUS"], ["gpu-014", "0-7", "0-7"])
        assert said == "NCCL: the ranks go on: they have launched more operations of NCCL within 15s"
        assert version == "  NCCL 2.28.9: 1 communicator of 16 processes, of 16 ranks"

        def refused(request: Request) -> RankLook:
            request.say("reading /proc")
            raise CommandFailed("no node of it\x1b[2J is read", hint="see its page")

        monitor.enable_looks(Nodes(monitor._demo.shell_of), {"nccl-ras": refused, "proc": refused})
        assert print_looks(monitor, HUNG, as_json=False) == 3
        done = capsys.readouterr()
        assert done.out.endswith("\n\nNCCL, /proc: could not look: no node of it is read\n  → see its page\n")
        assert done.err == "reading /proc\n" * 2
