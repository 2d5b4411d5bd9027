"""Jump: a letter over each pane. Pressing a letter goes there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.geometry import Offset

from tui.modals.dialog import Dialog, text

LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""The home row first."""


class Target(NamedTuple):
    """A pane: its number, and the position of its letter."""

    name: str
    at: Offset


class Jump(Dialog[str | None]):
    """Shows the letters over the screen below; any other key closes it."""

    READS_EVERY_KEY = True

    def __init__(self, targets: Sequence[Target]) -> None:
        super().__init__()
        self.targets = dict(zip(LETTERS, targets, strict=False))

    def compose(self) -> ComposeResult:
        for letter, target in self.targets.items():
            label = text(f" {letter} ", "letter")
            label.styles.offset = target.at
            yield label

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        target = self.targets.get(event.key)
        self.dismiss(None if target is None else target.name)
