"""The one thread that looks after all hosts."""

from __future__ import annotations

import threading
from pathlib import Path

from collectors.nodes import Watch
from collectors.supervisor import Supervisor
from trainmon.config import choose


def test_a_host_that_cannot_be_looked_after_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text("Host *\n  HostName 127.0.0.1\n  Port 1\n")
    settings, _ = choose(None, ("n1", "n2"))
    supervisor = Supervisor(settings, lambda event: None, ask=None, ssh_config=config)
    supervisor.start()
    again = threading.Semaphore(0)

    def broken() -> None:
        raise RuntimeError("can't start new thread")

    first, second = supervisor._watches.values()
    replaced(first, broken)
    replaced(second, again.release)
    try:
        assert all(again.acquire(timeout=5) for _ in range(2))
    finally:
        supervisor.stop()


def replaced(watch: Watch, tick: object) -> None:
    watch.tick = tick  # type: ignore[method-assign, assignment]
