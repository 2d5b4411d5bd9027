"""The action menu of a row: each action with its key, and why some are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from trainmon.actions.planning import Offer, offered
from trainmon.lib import Instant, cell_width, clean, shorten
from trainmon.model import State, Verb
from tui.keys import bindings
from tui.modals.dialog import Dialog, text
from tui.style import Span
from tui.views import TITLES, key_of
from tui.widgets import KeyedLines, Row

if TYPE_CHECKING:
    from tui.views import Subject


class Entry(NamedTuple):
    """One line of the menu: a verb, and the refusal when it is impossible for all rows."""

    verb: Verb
    text: str
    refusal: str


SWITCH = "Remove an armed switch"


class Menu(Dialog[Verb | None]):
    """Enter or a capital letter opens the plan of a verb. The menu itself changes nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("act", "act-node")]

    def __init__(self, subjects: Sequence[Subject], state: State, now: Instant) -> None:
        super().__init__()
        self.subjects = tuple(subjects)
        self.entries = entries(self.subjects, state, now)
        self.lines = KeyedLines()
        self.refusal = text("", "body")

    def compose(self) -> ComposeResult:
        names = clean(self.subjects[0][1] if len(self.subjects) == 1 else f"{len(self.subjects)} marked rows", 200)
        question = text(f"Actions on {names}", "question")
        hint = text("Enter shows the plan and changes nothing  Esc closes", "hint")
        yield Vertical(question, self.lines, self.refusal, hint, classes="dialog")

    def on_mount(self) -> None:
        self.lines.styles.height = min(max(1, len(self.entries)), 14)
        self.lines.focus()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(lambda: self.lines.set_rows(rows(self.entries, self.lines.row_width)))

    def on_keyed_lines_moved(self, event: KeyedLines.Moved) -> None:
        self.refusal.update(next((entry.refusal for entry in self.entries if entry.verb == event.key), ""))

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        self._close_with(event.key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A capital letter works as outside the menu, for the possible actions."""
        if action == "act":
            return any(entry.verb in same_key(str(parameters[0])) and not entry.refusal for entry in self.entries)
        return super().check_action(action, parameters)

    def action_act(self, verb: str) -> None:
        self._close_with(*same_key(verb))

    def _close_with(self, *verbs: str) -> None:
        found = next((entry for entry in self.entries if entry.verb in verbs and not entry.refusal), None)
        if found is not None:
            self.dismiss(found.verb)


def same_key(verb: str) -> tuple[str, ...]:
    """The verbs that share the key of this one."""
    return {"hold": ("hold", "release"), "unkill": ("unkill", "unsave")}.get(verb, (verb,))


def entries(subjects: Iterable[Subject], state: State, now: Instant) -> tuple[Entry, ...]:
    """Each verb once, possible ones first. With several rows a verb is refused when all rows refuse it."""
    offers: dict[Verb, list[Offer]] = {}
    for kind, key in subjects:
        for offer in offered(state, kind, key, now):
            offers.setdefault(offer.verb, []).append(offer)
    found = {verb: _entry(verb, several) for verb, several in offers.items() if verb != "unsave"}
    if "unkill" in found:  # its plan lists the armed switches of both kinds
        found["unkill"] = found["unkill"]._replace(text=SWITCH)
    held = [found[verb] for verb in ("hold", "release") if verb in found]
    if len(held) == 2 and any(entry.refusal for entry in held):  # both have one key: omit the impossible one
        found.pop("hold" if held[0].refusal and not held[1].refusal else "release")
    return tuple(sorted(found.values(), key=lambda entry: bool(entry.refusal)))


def _entry(verb: Verb, offers: Sequence[Offer]) -> Entry:
    possible = [offer for offer in offers if offer.refusal is None]
    title = offers[0].title if len(offers) == 1 else f"{TITLES[verb]}: {len(possible)} of {len(offers)} rows"
    refusal = next((offer.refusal for offer in offers if offer.refusal is not None), None)
    if possible or refusal is None:
        return Entry(verb, clean(title, 200), "")
    return Entry(verb, clean(title, 200), clean(refusal.why + (f"; {refusal.hint}" if refusal.hint else ""), 600))


def rows(found: Sequence[Entry], width: int) -> list[Row]:
    """The lines. A refused verb is dim, with its reason cut to fit: the full reason stands below."""
    return [row(entry, max(cell_width(one.text) for one in found), width) for entry in found]


def row(entry: Entry, column: int, width: int) -> Row:
    key, title = f" {key_of(entry.verb):<3}", entry.text + " " * (column - cell_width(entry.text))
    if not entry.refusal:
        return Row(entry.verb, (Span(key, "accent bold"), Span(title)))
    why = shorten(f"  refused: {entry.refusal}", width - cell_width(key) - cell_width(title))
    return Row(entry.verb, (Span(key, "dim"), Span(title, "dim"), Span(why, "dim")))
