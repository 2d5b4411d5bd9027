"""A dashboard on States of a test whose logs are real files of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace
from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.screen_text import at_rest, text_of
from trainmon.model import Run, State
from trainmon.runtime.log_file import LogFile
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell


@asynccontextmanager
async def files(state: State, text: str, folder: Path) -> AsyncIterator[FakeBackend]:
    """A backend that reads every log from one file."""
    path = folder / "train.log"
    path.write_text(text)
    loop = EventLoop()
    loop.start()
    shell = LocalShell(loop)

    def opened(run: Run) -> LogFile:
        assert run.log is not None
        return LogFile(replace(run, log=replace(run.log, path=str(path))), lambda _: shell, ())

    backend = FakeBackend(state)
    backend.log_source = opened
    try:
        yield backend
    finally:
        shell.close()
        loop.stop()


async def until_shown(pilot: Pilot[None], text: str, seconds: float = 30.0) -> str:
    """Wait for what another thread reads."""
    deadline = asyncio.get_running_loop().time() + seconds
    while text not in (shown := text_of(pilot.app)):
        assert asyncio.get_running_loop().time() < deadline, f"not shown: {text!r}\n{shown}"
        await asyncio.sleep(0.02)
        await at_rest(pilot)
    return shown
