"""`--once`, as cron has it: each look remembers the one before, tells what it must, and its status says how it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.alerts.daemon import UNWANTED, AlertDaemon, imported
from tests.alerts.messages import titles
from tests.end_to_end.product import Cluster
from tests.lab.clock import SetClock
from tests.lab.ntfy_server import NtfyServer
from tests.lab.receiver import Receiver

MakeDaemon = Callable[..., AlertDaemon]


@pytest.fixture
def switch() -> Iterator[Receiver]:
    with Receiver.start() as receiver:
        yield receiver


def test_looks_of_cron_are_one_watch_and_load_nothing_of_a_terminal_or_a_plot(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon, switch: Receiver, tmp_path: Path
) -> None:
    """A minute lies between two of them, by a clock that is set."""
    clock = SetClock(tmp_path)
    hook = f'[[notify]]\ntype = "apprise"\nurl = "json://127.0.0.1:{ntfy.port}/a"\n[[notify]]\ntype = "desktop"\n'
    # A look that is slow sees that there is no desktop, and says so on the phone; one that is quick does not.
    off = "".join(f'[[rule]]\ntype = "{rule}"\nenabled = false\n' for rule in ("clock-skew", "channel-failing"))
    daemon = make_daemon(hook + off, **clock.env)
    text = daemon.config.read_text().replace("start = false", f'start = false\nping = "{switch.url}/check"')
    daemon.config.write_text(text.replace('for = "0s"\nkeep_firing_for = "1s"', 'for = "29s"\nkeep_firing_for = "29s"'))
    nodes.nvml[0].set(1, memory_used=85_500_000_000)
    first = daemon.once()
    assert (first.returncode, titles(ntfy)) == (0, []), first.stderr
    clock.ahead(60)
    second = daemon.once(PYTHONPROFILEIMPORTTIME="1")
    assert second.returncode == 1, second.stderr
    assert titles(ntfy) == ["CRITICAL gpu-memory-full n0/1"]
    assert {"paramiko", "sqlite3", "urllib3"} <= imported(second.stderr)
    assert not imported(second.stderr) & UNWANTED
    status = daemon.run("status")
    assert (status.returncode, status.stdout.partition(" (pid")[0]) == (1, "once"), status.stdout

    nodes.nvml[0].clear(gpus=2)
    clock.ahead(120)
    assert daemon.once().returncode == 1
    clock.ahead(180)
    last = daemon.once()
    assert last.returncode == 0, last.stderr
    assert titles(ntfy) == ["CRITICAL gpu-memory-full n0/1", "RESOLVED gpu-memory-full n0/1"]
    assert [request.path for request in switch.taken] == ["/check"] * 4
    assert daemon.run("status").returncode == 0
