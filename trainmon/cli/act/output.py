"""Prints plans and the progress of actions as plain lines: nothing is wrapped, so that a command can be copied."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from trainmon.actions.verbs import VERB, VERBS
from trainmon.actions.verification.effects import Observation
from trainmon.lib import Seconds, cell_width, clean
from trainmon.model import Action, CreateFile, Execute, Milestone, Plan, Record, Refusal, State
from trainmon.slurm.reasons import waiting_reason
from tui.style import DEAD, WARN

MAX_LINE = 100_000
"""Characters of a line that are printed: a command is never cut."""

KEYS = {spec.key: spec.name for spec in VERBS if spec.help}
"""The keys of the dashboard that sentences name, and the commands that do the same."""
KEY = re.compile(rf"(?<![\w'-])(?<!\d )([{''.join(KEYS)}])(?=$| [a-z]|[,;.)])")

QUOTED = re.compile("(“[^”]*”)")
"""Text that a person wrote into a switch file. It names no keys: `plan C` stays."""

KEY_AND_COMMAND = re.compile(rf"[{''.join(KEYS)}], or (?=trainmon-tui )")
"""A sentence that names the key and the command."""

CODES = {"done": 0, "failed": 1, "refused": 4, "unknown": 3, "asked": 3}
"""Exit statuses by status. A requeue is done when the job was seen to run again. An action with an unknown result may
still be done: see `trainmon-tui actions`."""

WORST_FIRST = (1, 3, 4, 0)
"""Exit statuses, the worst first."""


# ---- plans -----------------------------------------------------------------------------------------------------------


def lines(plan: Plan) -> Iterator[str]:
    """The whole plan: what would be done, then what is refused."""
    if plan.choices:
        yield "Several switches are armed; choose one with --switch:"
        for path, description in plan.choices:
            yield _safe(f"  --switch {path}   {description}")
    for number, action in enumerate(plan.actions):
        if number:
            yield ""
        yield from _action(action)
    for refusal in plan.refusals:
        yield from refused(refusal)
    if not (plan.actions or plan.refusals or plan.choices):
        yield "Nothing to do."


def refused(refusal: Refusal) -> Iterator[str]:
    """Why not, and the way out."""
    yield _safe(f"{DEAD} refused: {refusal.subject}: {in_commands(refusal.why)}")
    if refusal.hint:
        yield _safe(f"    → {in_commands(refusal.hint)}")


def in_commands(sentence: str) -> str:
    """Where a sentence names a key of the dashboard, the command: `U removes it` → `unkill takes it back`."""
    sentence = KEY_AND_COMMAND.sub("", sentence)
    if "releas" in sentence:  # the one key that does two things
        sentence = sentence.replace("(H)", "(`release`)")
    parts = QUOTED.split(sentence)
    parts[::2] = [KEY.sub(lambda key: f"`{KEYS[key[1]]}`", part) for part in parts[::2]]
    return "".join(parts)


def _action(action: Action) -> Iterator[str]:
    yield _safe(action.title)
    for warning in action.warnings:
        yield _safe(f"  {WARN} {in_commands(warning)}")
    facts = list(action.facts)
    match action.operation:
        case CreateFile(text=text):
            facts.append(("content", text))
        case Execute(login_shell=True):
            facts.append(("how", "in a login shell, so that its modules are loaded"))
    kept = (log for log in (action.keep_log, action.keep_errors) if log)
    facts += [("first", f"the end of {log} is copied to the ledger") for log in kept]
    facts += [("" if number else "then", in_commands(text)) for number, text in enumerate(action.consequences)]
    width = max((cell_width(label) for label, _ in facts), default=0)
    for label, text in facts:
        yield _safe(f"  {label}{' ' * (width - cell_width(label))}  {text}")


def _safe(text: str) -> str:
    return clean(text, MAX_LINE)


# ---- progress --------------------------------------------------------------------------------------------------------


class StateWatcher:
    """Holds the newest State, and waits for a condition on it."""

    def __init__(self, subscribe: Callable[[Callable[[State], None]], Callable[[], None]]) -> None:
        self._changed = threading.Condition()
        self.state = State()
        self.close = subscribe(self._take)

    def _take(self, state: State) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[State], bool], timeout: Seconds) -> bool:
        """Wait for a condition; false when it does not come true in time."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self.state), timeout)


def follow(
    watcher: StateWatcher,
    actions: Sequence[Action],
    timeout: Seconds,
    wait: Seconds | None,
    print_line: Callable[[str], None],
) -> int:
    """Print the progress of actions: at most `timeout` until they are over, then at most `wait` for their effects.

    Without `wait` it waits for the first effect only, whose absence does not change the exit status; that it has failed
    does. Only a verb with a milestone of success, such as that the job runs again, must show it.
    """
    shown: set[str] = set()

    def show(state: State) -> list[Record]:
        """Print what is new of the actions, each fact once."""
        records = [state.actions[action.id] for action in actions if action.id in state.actions]
        for record in records:
            for key, at, text in _facts(record):
                if key not in shown:
                    shown.add(key)
                    print_line(line(at, record.action, text))
        return records

    def are_over(state: State) -> bool:
        records = show(state)
        return len(records) == len(actions) and all(record.status != "asked" for record in records)

    def are_confirmed(state: State) -> bool:
        return all(
            not record.is_open
            or (wait is None and (record.status != "done" or any(mark.at or mark.missed for mark in _effects(record))))
            for record in show(state)
        )

    if watcher.wait_for(are_over, timeout):
        first = max(VERB[action.verb].first_effect for action in actions)
        watcher.wait_for(are_confirmed, first if wait is None else wait)
    final, codes = watcher.state, set()
    for action in actions:
        record = final.actions.get(action.id)
        codes.add(_code(record, wait))
        if record is None or record.status == "asked":
            print_line(line(None, action, "its result is unknown; see `trainmon-tui actions`"))
        elif record.is_open and record.status == "done" and (wait is not None or not _has_succeeded(record)):
            missing = [mark.name for mark in record.marks if mark.at is None and mark.missed is None]
            if missing:
                print_line(line(None, action, f"still to come: {', '.join(missing)}{_pending(record, final)}"))
    return next(code for code in WORST_FIRST if code in codes)


def _code(record: Record | None, wait: Seconds | None) -> int:
    """The exit status of an action. A missed milestone means failed; with `wait`, an open one means unknown."""
    if record is None or record.status != "done":
        return 3 if record is None else CODES[record.status]
    if any(mark.missed for mark in record.marks):
        return 1
    return 0 if _has_succeeded(record) and (wait is None or not record.is_open) else 3


def _pending(record: Record, state: State) -> str:
    """Slurm's reason why a requeued job still waits, or that it is not known yet."""
    job = Observation(record, state, state.at).job if record.action.verb == "requeue" else None
    if job is None or job.stage != "waiting":
        return "" if job is None else f"; Slurm has not shown yet whether and why job {job.id} is pending"
    return f"; job {job.id} is still pending: {waiting_reason(job, state.at)}{f' ({job.reason})' if job.reason else ''}"


def _has_succeeded(record: Record) -> bool:
    """Whether the milestone of its success was seen: the job of a requeue runs again. True for other verbs."""
    return not VERB[record.action.verb].success or any(mark.at is not None for mark in _effects(record))


def _effects(record: Record) -> tuple[Milestone, ...]:
    """Its milestones. Where one of them is its success, only this one, and those that were missed."""
    success = VERB[record.action.verb].success
    return tuple(mark for mark in record.marks if success in ("", mark.name) or mark.missed)


def _facts(record: Record) -> Iterator[tuple[str, float | None, str]]:
    name = record.action.id
    if record.status != "asked":
        outcome = f": {in_commands(record.outcome)}" if record.outcome else ""
        yield f"{name} status", record.done_at, f"{record.status}{outcome}"
    if record.note:
        yield f"{name} note {record.note}", record.done_at, record.note
    for mark in record.marks:
        if mark.at is not None:
            yield f"{name} {mark.name}", mark.at, mark.name
        if mark.missed is not None:
            yield f"{name} {mark.name} {mark.missed}", None, f"not: {mark.name}: {in_commands(mark.missed)}"


def line(at: float | None, action: Action, text: str) -> str:
    """`12:30:04  Save a checkpoint of video-2b: the file is taken`."""
    shown = "        " if at is None else time.strftime("%H:%M:%S", time.localtime(at))
    return clean(f"{shown}  {action.title}: {text}")
