"""See a screen: `python -m tests.tui.look --size 120x40 --state troubled --press 2,v --svg out.svg` (or as text)."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard, settled
from tests.tui.states.plans import STATES, planning


async def look(size: tuple[int, int], state: str, press: list[str], svg: str | None, theme: str | None) -> str:
    app = dashboard(planning(STATES[state]()))
    async with running(app, size=size) as pilot:
        if theme:
            app.theme = theme
        await at_rest(pilot)
        for key in press:
            await pilot.press(key)
            await at_rest(pilot)
        await at_rest(pilot)
        if svg:
            Path(svg).write_text(app.export_screenshot(), encoding="utf-8")
        return await settled(pilot)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--state", default="troubled", choices=STATES)
    parser.add_argument("--press", default="")
    parser.add_argument("--svg")
    parser.add_argument("--theme")
    args = parser.parse_args()
    width, height = map(int, args.size.split("x"))
    print(asyncio.run(look((width, height), args.state, [k for k in args.press.split(",") if k], args.svg, args.theme)))


if __name__ == "__main__":
    main()
