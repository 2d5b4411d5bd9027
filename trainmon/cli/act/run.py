"""Runs one verb of the command line: wait for the sources, plan, confirm, act, follow."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import click

from trainmon.cli.act.output import StateWatcher, follow, lines
from trainmon.cli.act.targets import NotFound, resolve, split_signal
from trainmon.cli.snapshot.command import SETTLE, are_read, has_answered
from trainmon.cli.terminal import plain, read_line
from trainmon.lib import Seconds, clean
from trainmon.model import Action, ActionRequest, Plan, State, Verb

SOURCES_TIMEOUT: Seconds = 10.0
"""How long all sources have for their first answer."""

PLAN_TIMEOUT: Seconds = 20.0
"""How long a plan may take: twice the executor's own limit."""

ACTION_TIMEOUT: Seconds = 90.0
"""How long an action may take before its outcome is called unknown: a check, the ledger, a login shell with sbatch."""

REFUSED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one command."""

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


class Backend(Protocol):
    """The part of trainmon.runtime.monitor that is needed here."""

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]: ...

    def prepare(self, request: ActionRequest, reply: Callable[[Plan], None]) -> None: ...

    def act(self, actions: Sequence[Action]) -> None: ...


def run(verb: Verb, args: tuple[str, ...], options: Options) -> int:
    """Run it with the config's hosts; returns the exit status."""
    from trainmon.config import load_settings
    from trainmon.lib import find_state_directory
    from trainmon.runtime.logfile import log_to_file
    from trainmon.runtime.monitor import Monitor

    settings, _ = load_settings(options.config, ())
    log_to_file()
    if warning := find_state_directory(os.environ).warning:
        print_error(warning)
    monitor = Monitor(settings, read_only=options.read_only, ssh_config=options.ssh_config, keeps=not options.dry_run)
    with monitor as backend, contextlib.closing(StateWatcher(backend.subscribe)) as watcher:
        wait_for_sources(watcher)
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
    print_lines(*lines(plan))
    if not plan.actions:
        return REFUSED
    if options.dry_run:
        return REFUSED if plan.refusals else 0
    if why_not := confirm(plan, options):
        print_error(why_not)
        return REFUSED
    backend.act(plan.actions)
    code = follow(watcher, plan.actions, ACTION_TIMEOUT * len(plan.actions), options.wait, print_lines)
    return code or (REFUSED if plan.refusals else 0)


def wait_for_sources(watcher: StateWatcher) -> None:
    """Wait until every source has answered or failed, including those that the first answers added."""
    until = time.monotonic() + SOURCES_TIMEOUT
    watcher.wait_for(have_answered, SOURCES_TIMEOUT)
    watcher.wait_for(lambda _: False, min(SETTLE, max(0.0, until - time.monotonic())))
    watcher.wait_for(have_answered, until - time.monotonic())


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


def print_lines(*lines: str) -> None:
    """Print lines on stdout."""
    for line in lines:
        click.echo(plain(line))


def print_error(text: str) -> None:
    """Print a message on stderr."""
    click.echo(f"trainmon-tui: {plain(clean(text))}", err=True)
