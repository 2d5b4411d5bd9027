"""Prints the progress of actions: each milestone with its time, until the result is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from trainmon.cli.act.format import in_commands
from trainmon.lib import Seconds, clean
from trainmon.model import Action, Record, State

CODES = {"done": 0, "failed": 1, "refused": 4, "unknown": 3, "asked": 3}
"""By status. An action without a known result may still be done: see `trainmon-tui actions`."""

CONFIRM: Seconds = 8.0
"""How long to wait for the first effect: a file that is there, a job that is held."""

WORST = (1, 3, 4, 0)
"""The order in which the worst of several exit statuses is chosen."""


class StateWatcher:
    """Holds the newest State, and waits for a condition on it."""

    def __init__(self, subscribe: Callable[[Callable[[State], None]], Callable[[], None]]) -> None:
        self._changed = threading.Condition()
        self.state = State()
        self._cancel = subscribe(self._take)

    def _take(self, state: State) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def wait_for(self, fact: Callable[[State], bool], timeout: Seconds) -> bool:
        """Whether it comes true in time."""
        with self._changed:
            return self._changed.wait_for(lambda: fact(self.state), timeout)

    def close(self) -> None:
        self._cancel()


def follow(
    watcher: StateWatcher, actions: Sequence[Action], longest: Seconds, wait: Seconds | None, say: Callable[[str], None]
) -> int:
    """Tell what becomes of each: at most `longest` until it is over, then at most `wait` for what follows it; without
    a `wait` only for its first sign, which decides nothing."""
    shown: set[str] = set()

    def show(state: State) -> dict[str, Record]:
        records = _records(state, actions)
        for line in _news(records, shown):
            say(line)
        return records

    def is_done(state: State) -> bool:
        return all(_is_done(record) for record in show(state).values()) and len(_records(state, actions)) == len(
            actions
        )

    def is_settled(state: State) -> bool:
        return all(not record.is_open for record in show(state).values())

    def is_confirmed(state: State) -> bool:
        return all(
            not record.is_open or record.status != "done" or any(mark.at or mark.missed for mark in record.marks)
            for record in show(state).values()
        )

    if watcher.wait_for(is_done, longest):
        watcher.wait_for(is_confirmed if wait is None else is_settled, CONFIRM if wait is None else wait)
    records = _records(watcher.state, actions)
    for line in _left(records, actions, wait):
        say(line)
    codes = {_code(records.get(action.id), wait) for action in actions}
    return next(code for code in WORST if code in codes)


def _records(state: State, actions: Sequence[Action]) -> dict[str, Record]:
    return {action.id: state.actions[action.id] for action in actions if action.id in state.actions}


def _is_done(record: Record) -> bool:
    return record.status != "asked"


def _code(record: Record | None, wait: Seconds | None) -> int:
    """The exit status of an action. With `wait`, an open milestone means unknown, and a missed one failed."""
    if record is None:
        return 3
    if record.status == "done" and wait is not None:
        if any(mark.missed for mark in record.marks):
            return 1
        return 3 if record.is_open else 0
    return CODES[record.status]


def _news(records: Mapping[str, Record], shown: set[str]) -> Iterator[str]:
    """What was not shown yet, each once."""
    for record in records.values():
        for key, at, words in _facts(record):
            if key not in shown:
                shown.add(key)
                yield line(at, record.action, words)


def _facts(record: Record) -> Iterator[tuple[str, float | None, str]]:
    name = record.action.id
    if _is_done(record):
        said = f": {in_commands(record.outcome)}" if record.outcome else ""
        yield f"{name} status", record.done_at, f"{record.status}{said}"
    if record.note:
        yield f"{name} note {record.note}", record.done_at, record.note
    for number, mark in enumerate(record.marks):
        if mark.at is not None:
            yield f"{name} {number}", mark.at, mark.name
        if mark.missed is not None:
            yield f"{name} {number} {mark.missed}", None, f"not: {mark.name}: {in_commands(mark.missed)}"


def _left(records: Mapping[str, Record], actions: Sequence[Action], wait: Seconds | None) -> Iterator[str]:
    """What is still out when nobody waits any longer."""
    for action in actions:
        record = records.get(action.id)
        if record is None or record.status == "asked":
            yield line(None, action, "its result is unknown; see `trainmon-tui actions`")
        elif wait is not None and record.is_open and record.status == "done":
            out = [mark.name for mark in record.marks if mark.at is None and mark.missed is None]
            if out:
                yield line(None, action, f"still to come: {', '.join(out)}")


def line(at: float | None, action: Action, words: str) -> str:
    """`12:30:04  Save a checkpoint of video-2b: the file is taken`."""
    shown = "        " if at is None else time.strftime("%H:%M:%S", time.localtime(at))
    return clean(f"{shown}  {action.title}: {words}")
