"""The kept screens. `python -m tests.tui.rewrite` writes them anew: read the difference before you commit it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from tests.tui.backend import FakeBackend
from tests.tui.screen_text import dashboard, settled
from tests.tui.states import STATES

FOLDER = Path(__file__).parent / "screens"


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
    Kept("empty", (80, 24), "empty"),
    Kept("silent", (80, 24), "silent"),
    Kept("nasty", (120, 40), "nasty"),
    Kept("tiny", (50, 12), "troubled"),
    Kept("gpus", (80, 24), "troubled", ("2",)),
    Kept("disk", (80, 24), "troubled", ("3",)),
    Kept("help", (80, 24), "calm", ("question_mark",)),
    Kept("prompt", (80, 24), "asking"),
    Kept("sort", (80, 24), "calm", ("s",)),
    Kept("jump", (120, 40), "calm", ("apostrophe",)),
    Kept("log", (80, 24), "calm", ("l", "w")),
    Kept("run", (80, 24), "troubled", ("enter",)),
    Kept("node", (120, 40), "troubled", ("2", "G", "enter")),
)


async def draw(kept: Kept) -> str:
    """The screen as text, without trailing blanks."""
    app = dashboard(FakeBackend(STATES[kept.state]()))
    async with app.run_test(size=kept.size) as pilot:
        await settled(pilot)
        for key in kept.keys:
            await pilot.press(key)
            await settled(pilot)
        return await settled(pilot)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for kept in SCREENS:
        kept.file.write_text(asyncio.run(draw(kept)), encoding="utf-8")


if __name__ == "__main__":
    main()
