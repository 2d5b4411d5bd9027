"""A real cluster is recorded, and shown again: sshd, Slurm, a trainer, and a dashboard that is killed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.end_to_end.product import CLOCK, PATIENCE
from tests.lab.daemons import until
from tests.slurm.product import SlurmProduct
from tests.slurm.training import Training
from tests.tui.pilot import running
from tests.tui.screen_text import settled
from trainmon.runtime.backend import DashboardBackend
from trainmon.runtime.recording import Player
from tui.app import Dashboard

SIZE = (80, 24)
DRAWS = 10


class Still(DashboardBackend):
    """Shows one State, without the time line."""

    def subscribe(self, sink: Any) -> Any:
        sink(self.engine.state)
        return lambda: None


def body(screen: str) -> list[str]:
    """A screen without its header and footer."""
    return [line.rstrip() for line in screen.rstrip().splitlines()[1:-1]]


async def test_a_recorded_cluster_is_shown_again_frame_by_frame_although_its_dashboard_was_killed(
    training: Callable[..., Training], product: SlurmProduct
) -> None:
    run = training("--save-s=0.6")
    run.start()
    product.watch(run.config())
    file = product.home / "cluster.trainmon"
    screen = product.dashboard(f"--record={file}", columns=SIZE[0], rows=SIZE[1])
    screen.until_shown(rf"{run.name}: healthy", r"slurm \ds")
    screen.keys("ppp")  # the whole frame is of one State: while nobody presses a key, some panes wait
    screen.until_shown("PAUSED")
    until(lambda: said(Player(file).line.end) > clock_of(screen.text()), "what was shown is recorded", PATIENCE)
    for _ in range(DRAWS):
        shown = screen.text()
        seen = await drawn(file, clock_of(shown))
        if body(shown) in seen:
            break
    assert body(shown) in seen

    os.kill(screen.pid, signal.SIGKILL)
    screen.wait(PATIENCE)
    checked = product.run("replay", "--check", str(file))
    assert checked.returncode == 0, checked.stderr
    assert re.fullmatch(r".+ from \d{4}-.* UTC: \d+ updates, \d+ nodes?, 1 run, \d+ alerts?\n", checked.stdout)
    again = product.screen("replay", str(file), columns=80, rows=24)
    again.until_shown("READ-ONLY", r"replay \d\d:\d\d:\d\dZ paused ━.* p play", rf"{run.name}: healthy")
    again.keys("(((K")
    again.until_shown(f"replay {said(player_start(file))}", "READ-ONLY", "this is a replay: it shows the past")
    again.leave()


def said(at: float) -> str:
    """A time as the header has it."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%SZ}"


def player_start(file: Path) -> float:
    return Player(file).line.start


def clock_of(screen: str) -> str:
    found = re.search(CLOCK, screen)
    assert found is not None
    return found[0]


async def drawn(file: Path, clock: str) -> list[list[str]]:
    """The frames of a second."""
    player, found = Player(file), []
    for at in [frame.at for frame in player.frames if said(frame.at) == clock]:
        player.seek(at)
        app = Dashboard(Still(player), clock=player.clock)
        async with running(app, size=SIZE) as pilot:
            found.append(body(await settled(pilot)))
    return found
