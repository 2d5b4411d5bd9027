"""The commands that act: save, kill, requeue and the others do what the capital keys do. And actions, their history.

Plans and progress are plain lines: nothing is wrapped, so that a command can be copied.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trainmon.actions.verbs import VERB
from trainmon.actions.verification import Observation
from trainmon.cli.act.targets import NotFound, resolve, split_signal
from trainmon.cli.snapshot import StateWatcher, are_read, has_answered, wait_until_full
from trainmon.cli.terminal import plain, print_error, print_json, print_lines, read_line, table
from trainmon.config import load_settings
from trainmon.ledger.actions import shell_command
from trainmon.ledger.ledger import action_texts, recent_actions
from trainmon.lib import Seconds, cell_width, clean, find_state_directory, say
from trainmon.model import Action, ActionRequest, CreateFile, Execute, Milestone, Plan, Record, State, Verb
from trainmon.runtime.logs import log_to_file
from trainmon.runtime.monitor import Monitor
from trainmon.slurm.reasons import waiting_reason
from tui.backend import Backend
from tui.style import DEAD, WARN

MAX_LINE = 100_000
"""Characters of a line that are printed: a command is never cut."""

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
        yield from (_safe(f"  --switch {path}   {description}") for path, description in plan.choices)
    for number, action in enumerate(plan.actions):
        if number:
            yield ""
        yield from _action(action)
    for refusal in plan.refusals:
        yield _safe(f"{DEAD} refused: {refusal.subject.replace('/', ', job ')}: {refusal.why}")
        if refusal.hint:
            yield _safe(f"    → {say(refusal.hint, 'command')}")
    if not (plan.actions or plan.refusals or plan.choices):
        yield "Nothing to do."


def plan_row(plan: Plan) -> dict[str, Any]:
    """The plan as plain values; every field is always present."""
    return {
        "verb": plan.request.verb,
        "actions": [
            {
                "title": action.title,
                "command": shell_command(action.operation),
                "host": action.host,
                "warnings": [say(one, "command") for one in action.warnings],
                "facts": [[label, text] for label, text in action.facts],
                "consequences": [say(one, "command") for one in action.consequences],
            }
            for action in plan.actions
        ],
        "refusals": [
            {"subject": one.subject, "why": one.why, "hint": say(one.hint, "command")} for one in plan.refusals
        ],
        "checks": [
            {"node": one.node or None, "check": one.check, "outcome": one.outcome, "why": one.why or None}
            for one in plan.checks
        ],
        "typed": plan.typed,
        "because": plan.because or None,
    }


def _action(action: Action) -> Iterator[str]:
    yield _safe(action.title)
    yield from (_safe(f"  {WARN} {say(warning, 'command')}") for warning in action.warnings)
    facts = list(action.facts)
    match action.operation:
        case CreateFile(text=text):
            facts.append(("content", text))
        case Execute(login_shell=True):
            facts.append(("how", "in a login shell, so that its modules are loaded"))
    kept = (log for log in (action.keep_log, action.keep_errors) if log)
    facts += [("first", f"the end of {log} is copied to the ledger") for log in kept]
    facts += [("" if number else "then", say(text, "command")) for number, text in enumerate(action.consequences)]
    width = max((cell_width(label) for label, _ in facts), default=0)
    yield from (_safe(f"  {label}{' ' * (width - cell_width(label))}  {text}") for label, text in facts)


def _safe(text: str) -> str:
    return clean(text, MAX_LINE)


# ---- progress --------------------------------------------------------------------------------------------------------


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
        outcome = f": {say(record.outcome, 'command')}" if record.outcome else ""
        yield f"{name} status", record.done_at, f"{record.status}{outcome}"
    if record.note:
        yield f"{name} note {record.note}", record.done_at, record.note
    for mark in record.marks:
        if mark.at is not None:
            yield f"{name} {mark.name}", mark.at, mark.name
        if mark.missed is not None:
            yield f"{name} {mark.name} {mark.missed}", None, f"{mark.name}: no, {say(mark.missed, 'command')}"


def line(at: float | None, action: Action, text: str) -> str:
    """`12:30:04  Save a checkpoint of video-2b: the file is taken`."""
    shown = "        " if at is None else time.strftime("%H:%M:%S", time.localtime(at))
    return clean(f"{shown}  {action.title}: {text}")


# ---- runs one verb of the command line -------------------------------------------------------------------------------

SOURCES_TIMEOUT: Seconds = 10.0
"""How long all sources have for their first answer."""

PLAN_TIMEOUT: Seconds = 60.0
"""How long a plan may take: the reads of the executor, and the checks of nodes before a restart."""

ACTION_TIMEOUT: Seconds = 90.0
"""How long an action may take before its outcome is called unknown: a check, the ledger, a login shell with sbatch."""

REFUSED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one command."""

    dry_run: bool = False
    as_json: bool = False
    read_only: bool = False
    yes: bool = False
    typed: str | None = None
    why: str = ""
    wait: Seconds | None = None
    config: Path | None = None
    ssh_config: Path | None = None
    switch: str | None = None
    count: int = 1
    run: str | None = None


def run(verb: Verb, args: tuple[str, ...], options: Options) -> int:
    """Run it with the config's hosts; returns the exit status."""
    settings, _ = load_settings(options.config, ())
    log_to_file()
    if warning := find_state_directory(os.environ).warning:
        print_error(warning)
    monitor = Monitor(
        settings,
        read_only=options.read_only,
        ssh_config=options.ssh_config,
        keeps=not (options.dry_run or options.as_json),
    )
    with monitor as backend, contextlib.closing(StateWatcher(backend.subscribe)) as watcher:
        wait_until_full(watcher, have_answered, SOURCES_TIMEOUT)
        return carry_out(backend, watcher, verb, args, options)


def carry_out(backend: Backend, watcher: StateWatcher, verb: Verb, args: tuple[str, ...], options: Options) -> int:
    """Run it with a backend whose sources have answered."""
    try:
        request = _request(watcher.state, verb, args, options)
    except NotFound as error:
        print_error(str(error))
        slurms = [source for source in watcher.state.sources.values() if source.kind == "slurm"]
        for source in slurms:
            if source.error:
                print_error(f"{source.name}: {source.problem}")
        return 2 if all(source.health in ("ok", "off") for source in slurms) else 3
    answers: queue.SimpleQueue[Plan] = queue.SimpleQueue()
    backend.prepare(request, answers.put)
    try:
        plan = answers.get(timeout=PLAN_TIMEOUT)
    except queue.Empty:
        print_error(f"no plan within {PLAN_TIMEOUT:g}s: the hosts are unreachable; nothing was done")
        return 3
    print_json(plan_row(plan)) if options.as_json else print_lines(*lines(plan))
    if not plan.actions:
        return REFUSED
    if options.dry_run or options.as_json:
        return REFUSED if plan.refusals else 0
    if why_not := confirm(plan, options):
        print_error(why_not)
        return REFUSED
    backend.act(plan.actions)
    code = follow(watcher, plan.actions, ACTION_TIMEOUT * len(plan.actions), options.wait, print_lines)
    return code or (REFUSED if plan.refusals else 0)


def have_answered(state: State) -> bool:
    """Whether all sources but W&B have answered, which no action needs, and the logs were read."""
    sources = [source for source in state.sources.values() if source.kind != "wandb"]
    return bool(sources) and all(has_answered(state, source) for source in sources) and are_read(state, ())


def _request(state: State, verb: Verb, args: tuple[str, ...], options: Options) -> ActionRequest:
    """The request of a command line.

    Raises:
        NotFound: when an argument names nothing.
    """
    args, signal = split_signal(args, state) if verb == "signal" else (args, None)
    subjects = resolve(verb, args, state)
    if options.run is not None:
        resolve("save", (options.run,), state)
    return ActionRequest(
        verb=verb,
        subjects=subjects,
        requested_at=time.time(),
        why=options.why,
        count=options.count,
        signal=signal or "USR1",
        switch=options.switch,
        is_exact=True,
        run=options.run,
    )


def confirm(plan: Plan, options: Options) -> str | None:
    """Ask the person at this terminal to confirm. None means yes; else the text says why nothing was done."""
    if plan.typed is not None and options.typed is not None and options.typed != plan.typed:
        return f"nothing was done: --typed is {options.typed}, but the plan requires {plan.typed}"
    is_typed = plan.typed is None or options.typed == plan.typed
    if options.yes and is_typed:
        return None
    if not sys.stdin.isatty():
        if not options.yes:
            return "nothing was done: there is no terminal to confirm on; to go on without confirmation: --yes"
        return f"nothing was done: {plan.because}; to go on without confirmation: --yes --typed {plan.typed}"
    try:
        if is_typed:
            many = f" with all {len(plan.actions)} actions" if len(plan.actions) > 1 else ""
            is_confirmed = read_line(f"Proceed{many}? [y/N] ").strip().lower() in ("y", "yes")
        else:
            print_error(plan.because)
            is_confirmed = read_line(f"Type {plan.typed} to confirm: ").strip() == plan.typed
    except EOFError:
        is_confirmed = False
    return None if is_confirmed else "nothing was done"


# ---- trainmon-tui actions --------------------------------------------------------------------------------------------

MAX_ACTIONS = 10_000
"""The most actions that are read: more than a person does in 90 days."""


def list_actions(subject: str | None, as_json: bool, wants_log: bool, since: float) -> int:
    """Print the actions of the last `since` seconds, or the log of one; the exit status."""
    if as_json and wants_log:
        raise click.UsageError("--json and --log exclude each other")
    log_to_file()
    directory = find_state_directory(os.environ).path
    found = recent_actions(directory, time.time() - since, MAX_ACTIONS)
    records = [record for record in found if subject is None or is_of(record, subject)]
    if wants_log:
        return print_log(directory, records)
    if as_json:
        print_json([action_row(record) for record in records])
        return 0
    if records:
        print_lines(*action_lines(records))
    else:
        click.echo(plain(f"no actions{f' on {subject}' if subject else ''} in this period"), err=True)
    return 0


def print_log(directory: Path, records: Sequence[Record]) -> int:
    """The end of the log that was saved for the newest action that has one."""
    for record in reversed(records):
        for kept in action_texts(directory, record.action.id):
            at = _at(kept.at, "%Y-%m-%d %H:%M:%S")
            click.echo(plain(f"{kept.host}:{kept.path} before: {record.action.title}, {at}"), err=True)
            click.echo(plain(kept.text))
            return 0
    click.echo("no log was saved for these actions", err=True)
    return 3


def is_of(record: Record, subject: str) -> bool:
    """Whether it is about a run, a job (with or without its cluster), or a node."""
    action = record.action
    return subject in (action.subject, action.run, action.job or "", (action.job or "").partition("/")[2])


def action_row(record: Record) -> dict[str, Any]:
    """An action as plain values; every field is always present, null is not known. Times are Unix seconds."""
    action = record.action
    return {
        "id": action.id,
        "asked_at": action.requested_at,
        "who": action.who,
        "from_host": action.from_host,
        "verb": action.verb,
        "subject": action.subject,
        "run": action.run,
        "job": action.job,
        "cluster": action.cluster,
        "host": action.host,
        "title": action.title,
        "command": shell_command(action.operation),
        "why": action.why,
        "step": action.step,
        "checkpoint": action.checkpoint,
        "status": record.status,
        "done_at": record.done_at,
        "outcome": say(record.outcome),
        "marks": [
            {"name": mark.name, "at": mark.at, "missed": mark.missed and say(mark.missed)} for mark in record.marks
        ],
        "settled_at": record.settled_at,
        "note": record.note,
    }


def action_lines(records: Sequence[Record]) -> Iterator[str]:
    """A table for people."""
    rows = []
    for record in records:
        action = record.action
        job = (action.job or "").partition("/")[2]
        of = action.run or job or action.subject
        rows.append((
            _at(action.requested_at, "%Y-%m-%d %H:%M:%S"),
            action.verb,
            f"{of} ({job})" if action.run and job else of,
            f"{action.who}@{action.from_host}",
            record.status,
            "; ".join(filter(None, (say(record.outcome), record.note, action.why and f"reason: {action.why}"))),
            "; ".join(map(_milestone, record.marks)),
        ))  # fmt: skip
    return table(("TIME", "ACTION", "TARGET", "USER", "STATUS", "RESULT", "EFFECTS"), rows)


def _milestone(mark: Milestone) -> str:
    if mark.missed is not None:
        return f"{mark.name}: no, {say(mark.missed)}"
    return f"{mark.name} {_at(mark.at, '%H:%M:%S')}" if mark.at is not None else f"{mark.name}: not yet"


def _at(at: float, form: str) -> str:
    return time.strftime(form, time.localtime(at))
