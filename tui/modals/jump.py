"""Jump: a letter over each pane and control; pressing it goes there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.geometry import Offset
from textual.widgets import Static

from tui.modals.once import Dialog

LETTERS = "asdfghjklqwertyuiopzxcvbnm"


class Target(NamedTuple):
    """A thing to jump to: a name for who opened this, and where its letter stands."""

    name: str
    at: Offset


def lettered(targets: Sequence[Target]) -> dict[str, Target]:
    """A letter for each target, those of the home row first."""
    return dict(zip(LETTERS, targets, strict=False))


class Jump(Dialog[str | None]):
    """Shows the letters over the screen below; any other key closes it."""

    def __init__(self, targets: Sequence[Target]) -> None:
        super().__init__()
        self.targets = lettered(targets)

    def compose(self) -> ComposeResult:
        for letter, target in self.targets.items():
            label = Static(f" {letter} ", classes="letter", markup=False)
            label.styles.offset = target.at
            yield label

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        target = self.targets.get(event.key)
        self.dismiss(None if target is None else target.name)
