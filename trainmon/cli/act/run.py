"""One verb from the command line to its end: look, plan, ask, act, follow."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import click

from trainmon.cli.act.follow import Seen, follow
from trainmon.cli.act.format import lines
from trainmon.cli.act.targets import NotFound, resolve, split_signal
from trainmon.cli.prompt import read_line
from trainmon.cli.snapshot.command import SETTLE, has_spoken
from trainmon.cli.table import plain
from trainmon.lib import Seconds, clean
from trainmon.model import Action, ActionRequest, Plan, State, Verb

LOOK: Seconds = 10.0
"""How long all sources have to say their first word."""

PLAN: Seconds = 20.0
"""How long a plan may take: twice what the performer gives itself."""

DEED: Seconds = 90.0
"""How long an action may take before its outcome is called unknown: a check, the ledger, a login shell with sbatch."""

REFUSED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one line asks for besides its subjects."""

    dry_run: bool = False
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


class Parts(Protocol):
    """What is needed of the joined parts; see trainmon.runtime.monitor."""

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]: ...

    def prepare(self, ask: ActionRequest, reply: Callable[[Plan], None]) -> None: ...

    def act(self, actions: Sequence[Action]) -> None: ...


def run(verb: Verb, words: tuple[str, ...], options: Options) -> int:
    """Do it with the config's hosts; the exit status."""
    from trainmon.config import load_settings
    from trainmon.lib import find_state_directory
    from trainmon.runtime.logfile import log_to_file
    from trainmon.runtime.monitor import Monitor

    settings, _ = load_settings(options.config, ())
    log_to_file()
    warning = find_state_directory(os.environ).warning
    if warning is not None:
        complain(warning)
    parts = Monitor(settings, read_only=options.read_only, ssh_config=options.ssh_config, keeps=not options.dry_run)
    parts.start()
    seen = Seen(parts.subscribe)
    try:
        look(seen)
        return carry_out(parts, seen, verb, words, options)
    finally:
        seen.close()
        parts.stop()


def carry_out(parts: Parts, seen: Seen, verb: Verb, words: tuple[str, ...], options: Options) -> int:
    """The same with parts that run already, and have told what there is."""
    ask = _ask(seen, verb, words, options)
    if ask is None:
        return 2 if _all_answer(seen.state) else 3
    plan = _plan(parts, ask)
    if plan is None:
        return 3
    say(*lines(plan))
    if not plan.actions:
        return REFUSED
    if options.dry_run:
        return REFUSED if plan.refusals else 0
    why_not = agreed(plan, options)
    if why_not is not None:
        complain(why_not)
        return REFUSED
    parts.act(plan.actions)
    code = follow(seen, plan.actions, DEED * len(plan.actions), options.wait, say)
    return code or (REFUSED if plan.refusals else 0)


def look(seen: Seen) -> None:
    """Until every source has said its first word, or failed, and those that these words brought as well."""
    until = time.monotonic() + LOOK
    seen.wait_for(have_spoken, LOOK)
    seen.wait_for(lambda _: False, min(SETTLE, max(0.0, until - time.monotonic())))
    seen.wait_for(have_spoken, until - time.monotonic())


def have_spoken(state: State) -> bool:
    """W&B is not waited for: no act needs it, and a person who kills a run does not want to wait for a web site."""
    asked = [source for source in state.sources.values() if source.kind != "wandb"]
    return bool(asked) and all(has_spoken(state, source) for source in asked)


def _all_answer(state: State) -> bool:
    return all(source.health in ("ok", "off") for source in state.sources.values() if source.kind == "slurm")


def _ask(seen: Seen, verb: Verb, words: tuple[str, ...], options: Options) -> ActionRequest | None:
    """What is asked for; None, told, when a word names nothing."""
    state = seen.state
    signal = None
    try:
        if verb == "signal":
            words, signal = split_signal(words, state)
        subjects = resolve(verb, words, state)
        if options.run is not None:
            resolve("save", (options.run,), state)
    except NotFound as error:
        complain(str(error))
        for source in state.sources.values():
            if source.kind == "slurm" and source.error:
                complain(f"{source.name}: {source.error}")
        return None
    return ActionRequest(
        verb=verb,
        subjects=subjects,
        asked_at=time.time(),
        why=options.why,
        count=options.count,
        signal=signal or "USR1",
        switch=options.switch,
        is_exact=True,
        run=options.run,
    )


def _plan(parts: Parts, ask: ActionRequest) -> Plan | None:
    answers: queue.SimpleQueue[Plan] = queue.SimpleQueue()
    parts.prepare(ask, answers.put)
    try:
        return answers.get(timeout=PLAN)
    except queue.Empty:
        complain(f"no plan within {PLAN:g} s: the hosts do not answer; nothing was done")
        return None


def agreed(plan: Plan, options: Options) -> str | None:
    """Ask the person at this terminal. None to go on, else why not."""
    is_person_there = sys.stdin.isatty()
    if plan.typed is not None and options.typed is not None and options.typed != plan.typed:
        return f"nothing was done: --typed {options.typed} is not {plan.typed}"
    is_typed = plan.typed is None or options.typed == plan.typed
    if not is_person_there:
        if not options.yes:
            return "nothing was done: there is no terminal to confirm on; --yes skips the question"
        return (
            None
            if is_typed
            else f"nothing was done: {plan.because}; to go on without asking: --yes --typed {plan.typed}"
        )
    if options.yes and is_typed:
        return None
    try:
        if is_typed:
            many = f" all {len(plan.actions)}" if len(plan.actions) > 1 else ""
            answer = read_line(f"Do{many or ' this'}? [y/N] ")
            return None if answer.strip().lower() in ("y", "yes") else "nothing was done"
        complain(plan.because)
        return None if read_line(f"Type {plan.typed} to go on: ").strip() == plan.typed else "nothing was done"
    except EOFError:
        return "nothing was done"


def say(*told: str) -> None:
    """Print lines of an answer."""
    for line in told:
        click.echo(plain(line))


def complain(words: str) -> None:
    """Print a line that is no answer."""
    click.echo(f"trainmon-tui: {plain(clean(words))}", err=True)
