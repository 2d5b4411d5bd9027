"""Wires one start: engine, collectors, login prompts and notifications."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from collectors.connections import local_hostname
from collectors.daemon.connection import DaemonConnection
from collectors.supervisor import Supervisor
from collectors.wandb.collector import WandbCollector
from trainmon.config import Settings, log_formats
from trainmon.engine.engine import Engine
from trainmon.ledger.ledger import KEEP, Ledger
from trainmon.lib import Clock, Seconds, SystemClock, find_state_directory
from trainmon.model import ActionChanged, AlertRequest, Curve, Event, LedgerTrouble, Record, RunsChanged
from trainmon.runtime.alert_service import AlertService, Program, judging, recall, senses
from trainmon.runtime.backend import DashboardBackend
from trainmon.runtime.login_prompts import Prompts
from trainmon.runtime.standby import Standby
from trainmon.transport.shell import AskUser, Shell

SAMPLES = "samples"
"""Where, beside the ledger, a sample of each run is kept ready."""

SOON: Seconds = 2.0
PAUSE: Seconds = 0.05

MOMENT: Seconds = 1.0
"""For what waits to be sent when a person quits; the rest waits in the ledger for whoever watches next."""


class Monitor(DashboardBackend):
    """The hosts of the settings. With `prompts`, a person is there to answer what a login asks; with `keeps`, what is
    done is written down, and what was open goes on to be followed. With a `program`, people are told of alerts, in that
    one's name; without, they are judged by what the ledger remembers, and told to nobody."""

    def __init__(
        self,
        settings: Settings,
        *,
        read_only: bool = False,
        prompts: bool = False,
        keeps: bool = True,
        program: Program | None = None,
        clock: Clock | None = None,
        ssh_config: Path | None = None,
    ) -> None:
        read_only = read_only or settings.read_only
        clock = clock or SystemClock()
        self._settings = settings
        self._begins_late = program == "once"
        """Whether nothing is told, or remembered, before all has been seen: see `evaluate_once`."""
        self._prompts = Prompts(self._say)
        ledger = ledger_of(settings, self._say) if keeps else None
        self.telling: AlertService | None = None
        if program is not None and ledger is not None:
            self.telling = self._telling(settings, ledger, clock, program, self._asking(prompts), ssh_config)
        alerting = self.telling.alerting if self.telling is not None else judging(settings, clock)
        engine = Engine(clock, read_only=read_only, formats=log_formats(settings), ledger=ledger, alerting=alerting)
        super().__init__(engine, ledger)
        ask = self._asking(prompts)
        self._supervisor = Supervisor(settings, self._submit, ask=ask, ssh_config=ssh_config)
        samples = find_state_directory(os.environ).path / SAMPLES if keeps else None
        self._wandb = WandbCollector((), settings.wandb.every, self.engine.submit, self.engine.clock, samples=samples)
        self.perform(self._supervisor.shell_of, self._supervisor.poll_queue_soon)

    def _asking(self, prompts: bool) -> AskUser | None:
        return self._prompts.ask if prompts else None

    def _telling(
        self,
        settings: Settings,
        ledger: Ledger,
        clock: Clock,
        program: Program,
        ask: AskUser | None,
        ssh_config: Path | None,
    ) -> AlertService:
        """A dashboard leaves it to the daemon of another machine, where there is one."""
        host = settings.daemon.host
        if program != "dashboard" or host is None or host in (local_hostname(), "localhost"):
            return AlertService(
                settings, ledger, self._say, clock, program=program, hurry=self._hurry, curve=self._curve
            )
        line = DaemonConnection(host, self._watched, ask, ssh_config)
        return Standby(
            settings, ledger, self._say, clock, host=host, line=line, program=program, hurry=self._hurry,
            curve=self._curve,
        )  # fmt: skip

    def _watched(self, host: str) -> Shell | None:
        """The connection of a watched host. Raises HostUnreachable where that is down."""
        return self._supervisor.shell_of(host) if f"node:{host}" in self.engine.state.sources else None

    def start(self) -> None:
        super().start()
        if self.telling is not None:
            self.engine.subscribe(self.telling.seen)
            if not self._begins_late:
                self.telling.start()
        else:
            recall(find_state_directory(os.environ).path, self._say, self.engine.clock.now())
        self._supervisor.start()
        self._wandb.start()

    def stop(self) -> None:
        """Let go of everything; within seconds, whatever hangs."""
        self.leave(None, MOMENT)

    def leave(self, why: str | None, flush: Seconds) -> None:
        """The same, after what waits was sent, for at most so long; with a `why`, people are told that nobody watches
        from now on."""
        self._prompts.close()
        self.rest()
        if self.telling is not None and flush > MOMENT:
            self._settle()
        if self.telling is not None and why is not None:
            self.telling.goodbye(why)
        self._wandb.stop()
        self._supervisor.stop()
        self.engine.stop()
        if self.telling is not None:
            self.telling.stop(flush)
        super().stop()

    def _settle(self) -> None:
        """What has just begun to fire waits a moment for others of its kind: it is told before the end."""
        until = time.monotonic() + SOON
        while self.is_about_to_tell(SOON) and time.monotonic() < until:
            time.sleep(PAUSE)

    def renew(self, settings: Settings) -> bool:
        """Go by these settings, where that needs no new connections; False where it does, and nothing has changed.
        Raises ConfigError."""
        if self.telling is None or senses(settings) != senses(self._settings):
            return False
        self.telling.renew(settings)
        self._settings = settings
        return True

    def trouble(self, words: str | None) -> None:
        if self.telling is not None:
            self.telling.trouble(words)

    def is_about_to_tell(self, within: Seconds) -> bool:
        """Whether something waits for others of its kind before it is told, and for no longer than that."""
        due = self.telling.alerting.due_in if self.telling is not None else None
        return due is not None and due < within

    def order(self, order: AlertRequest) -> None:
        if self.telling is not None:
            self.telling.order(order)
        else:
            super().order(order)

    def _say(self, event: Event) -> None:
        self.engine.submit(event)

    def _curve(self, path: str, key: str) -> Curve:
        return self.engine.curve(path, key)

    def _hurry(self, source: str) -> None:
        self._supervisor.poll_soon(source)

    def _submit(self, event: Event) -> None:
        """What the hosts and queues say; the runs that there are by their word are those of W&B, too."""
        self.engine.submit(event)
        if isinstance(event, RunsChanged):
            self._wandb.follow(event.specs)

    def refresh(self) -> None:
        self._supervisor.refresh()
        self._wandb.refresh()
        if isinstance(self.telling, Standby):
            self.telling.daemon.refresh()

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        self._wandb.save_samples(run, directory, reply)

    def named_disks(self) -> frozenset[tuple[str, str]]:
        """The hosts and paths of the disks that are looked at because the config names them."""
        return self._supervisor.named_disks()

    def look_at_job(self, key: str) -> None:
        self._supervisor.poll_job(key)

    def login(self, source: str) -> None:
        if isinstance(self.telling, Standby) and source == f"daemon:{self.telling.daemon.host}":
            self.telling.daemon.login()
        else:
            self._supervisor.login(source)

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self._prompts.answer(prompt, answers)


log = logging.getLogger(__name__)


def ledger_of(settings: Settings, submit: Callable[[Event], None], environ: Mapping[str, str] = os.environ) -> Ledger:
    """The ledger, not started yet. What was still open when last written becomes part of the State as it starts."""
    found = find_state_directory(environ)
    if found.warning is not None:
        log.warning("%s", found.warning)

    def recalled(records: list[Record]) -> None:
        for record in records:
            submit(ActionChanged(record))

    return Ledger(
        found.path,
        lambda words: submit(LedgerTrouble(words)),
        recalled=recalled,
        keep=settings.ledger.keep if settings.ledger is not None else KEEP,
        is_network=found.is_network,
    )
