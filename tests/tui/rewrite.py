"""The kept screens. `python -m tests.tui.rewrite` writes them anew: read the difference before you commit it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard, settled
from tests.tui.states.plans import STATES, planning

FOLDER = Path(__file__).parent / "kept"


class Kept(NamedTuple):
    """A screen that is kept as text: its size, the State and the keys that lead to it."""

    name: str
    size: tuple[int, int]
    state: str
    keys: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}-{self.size[0]}x{self.size[1]}.txt"


SIZES = ((80, 24), (120, 40), (200, 60))

SCREENS: tuple[Kept, ...] = (
    *(Kept("troubled", size, "troubled") for size in SIZES),
    *(Kept("calm", size, "calm") for size in SIZES),
    *(Kept("queued", size, "queued", ("7",)) for size in SIZES),
    Kept("queue-zoomed", (120, 40), "queued", ("7", "7")),
    Kept("queue-nodes", (80, 24), "queued", ("7", "v")),
    Kept("queue-none", (80, 24), "calm", ("7",)),
    Kept("slurm-down", (120, 40), "slurm-down", ("7",)),
    Kept("job", (80, 24), "queued", ("7", "j", "enter")),
    Kept("run-job", (120, 40), "queued", ("j", "enter")),
    *(Kept("attempt", size, "attempted", ("j", "enter", *"jjjjjjjj", "enter")) for size in SIZES[:2]),
    Kept("empty", (80, 24), "empty"),
    Kept("silent", (80, 24), "silent"),
    Kept("nasty", (120, 40), "nasty"),
    Kept("tiny", (50, 12), "troubled"),
    *(Kept("alerts", size, "alarmed", ("5",)) for size in SIZES),
    Kept("alerts-zoomed", (120, 40), "alarmed", ("5", "5")),
    Kept("alerts-none", (80, 24), "at-ease", ("5",)),
    Kept("alert", (80, 24), "alarmed", ("5", "enter")),
    Kept("alert-inhibited", (120, 40), "alarmed", ("5", "slash", *"inhibited", "enter", "enter")),
    Kept("alert-daemon", (120, 40), "told-elsewhere", ("5", "j", "enter")),
    Kept("acknowledge", (80, 24), "alarmed", ("5", "space", "space", "a")),
    Kept("mute", (80, 24), "alarmed", ("5", "j", "m")),
    Kept("gpus", (80, 24), "troubled", ("2",)),
    Kept("disk", (80, 24), "troubled", ("3",)),
    Kept("help", (80, 24), "calm", ("question_mark",)),
    Kept("prompt", (80, 24), "asking"),
    Kept("sort", (80, 24), "calm", ("s",)),
    Kept("plan", (80, 24), "acting", ("j", "K")),
    Kept("plan", (120, 40), "acting", ("j", "R")),
    Kept("typed", (80, 24), "acting", ("j", "C")),
    Kept("menu", (80, 24), "acting", ("j", "x")),
    Kept("jump", (120, 40), "calm", ("apostrophe",)),
    Kept("palette", (80, 24), "alarmed", ("colon", *"s")),
    Kept("log", (80, 24), "calm", ("l", "w")),
    *(Kept("log-format", size, "calm", ("l", "i", "right", "right")) for size in SIZES),
    Kept("run", (80, 24), "troubled", ("enter",)),
    Kept("node", (120, 40), "troubled", ("2", "G", "enter")),
    Kept("wandb", (80, 24), "wandb", ("6",)),
    Kept("wandb", (200, 60), "wandb"),
    Kept("wandb", (60, 16), "wandb-down", ("6",)),
    Kept("wandb-zoomed", (120, 40), "wandb-several", ("6", "6")),
    Kept("wandb-cursor", (120, 40), "wandb", ("6", "6", "e", "e", "i", *["left"] * 9)),
    Kept("wandb-none", (80, 24), "calm", ("6",)),
    Kept("wandb-run", (80, 50), "wandb-waiting", ("enter",)),
    Kept("node-drained", (80, 24), "queued", ("2", "j", "enter")),
)


async def draw(kept: Kept) -> str:
    """The screen as text, without trailing blanks."""
    app = dashboard(planning(STATES[kept.state]()))
    async with running(app, size=kept.size) as pilot:
        await at_rest(pilot)
        for key in kept.keys:
            await pilot.press(key)
            await at_rest(pilot)
        return await settled(pilot)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for kept in SCREENS:
        kept.file.write_text(asyncio.run(draw(kept)), encoding="utf-8")


if __name__ == "__main__":
    main()
