"""Wires one start: engine, collectors, login prompts and notifications."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collectors.connections import local_hostname
from collectors.daemon import DaemonConnection
from collectors.supervisor import Supervisor
from collectors.wandb.collector import WandbCollector
from trainmon.actions.verification import followed_directories
from trainmon.alerting.manager import AlertManager
from trainmon.analysis.attempts import ending_directories, read_once, unwatched_since
from trainmon.config import InvalidValue, Settings, enabled_rules, log_formats, resolve_secret, routing_of
from trainmon.engine.engine import Engine
from trainmon.ledger.ledger import (
    ATTEMPTS_AT_MOST,
    ATTEMPTS_OF,
    KEEP,
    Ledger,
    LedgerStuck,
    alerts_now,
    node_history,
    recent_attempts,
)
from trainmon.ledger.postgresql import PostgresCopy, is_address
from trainmon.lib import Clock, ConfigError, Instant, Seconds, SystemClock, find_state_directory, is_first_time
from trainmon.lib.extras import install_command
from trainmon.model import (
    ActionChanged,
    AlertRequest,
    AlertsRestored,
    AnyReading,
    AttemptsRestored,
    ChannelsChanged,
    ConfigRefused,
    Event,
    LedgerTrouble,
    NoticeGiven,
    Record,
    RunsChanged,
)
from trainmon.runtime.backend import DashboardBackend, Prompts
from trainmon.runtime.log_file import LogHistories
from trainmon.runtime.looks import AutomaticLooks, Nodes
from trainmon.runtime.looks.flight_recorder import DumpReader
from trainmon.runtime.retries import AutoRequeue
from trainmon.transport.shell import AskUser, Shell

if TYPE_CHECKING:
    from trainmon.engine.metrics.exporter import Exporter
    from trainmon.runtime.alert_service import AlertService, Program
    from trainmon.runtime.standby import Standby

RELOADED = (
    "clusters", "runs", "disks", "log_formats", "evals", "retry", "rules", "notify", "alerts", "maintenance",
    "dashboard",
)  # fmt: skip
"""The settings that a running program takes over."""

SAMPLES = "samples"
"""The directory beside the ledger for the newest sample of each run."""

RECORDINGS = "recordings"
"""The directory beside the ledger for the last minutes, and for what was around critical alerts."""

SOON: Seconds = 2.0
PAUSE: Seconds = 0.05

MOMENT: Seconds = 1.0
"""How long notifications may still be sent when a person quits; the rest waits in the ledger for the next program."""


class Monitor(DashboardBackend):
    """Watches the hosts of the settings. With `prompts`, a person answers the prompts of logins in the dashboard, with
    `ask` elsewhere. `on_reading`: see Supervisor. With `keeps`, actions
    are written to the ledger, and open ones are still verified. With a `program`, people are notified of alerts in its
    name; without, alerts are evaluated and nobody is notified. The same holds without `records`, and the alerts of the
    ledger are neither shown nor changed: they belong to other hosts."""

    def __init__(
        self,
        settings: Settings,
        *,
        read_only: bool = False,
        prompts: bool = False,
        keeps: bool = True,
        program: Program | None = None,
        records: bool = True,
        clock: Clock | None = None,
        ssh_config: Path | None = None,
        ask: AskUser | None = None,
        on_reading: Callable[[str, AnyReading], None] = lambda host, reading: None,
    ) -> None:
        read_only = read_only or settings.read_only
        clock = clock or SystemClock()
        self._settings = settings
        self._records = records
        self._gives_notices = keeps and program is not None
        self._starts_late, self._is_drawn = program == "once", program == "dashboard"
        """Whether alerts start only when every source was read once: see `evaluate_once`."""
        self._prompts = Prompts(self._forward)
        ask = self._prompts.ask if prompts else ask
        ledger = ledger_of(settings, self._forward) if keeps else None
        self._copy: PostgresCopy | None = None
        self.alert_service: AlertService | None = None
        self._standby: Standby | None = None
        if program is not None and ledger is not None and records:
            url = copy_address(settings)
            self._copy = None if url is None else PostgresCopy(ledger.file.parent, url, clock)
            self.alert_service = self._make_alert_service(settings, ledger, clock, program, ask, ssh_config)
        if self.alert_service is not None:
            alerting = self.alert_service.alerting
        else:  # it evaluates alerts and notifies nobody
            rules, routing = enabled_rules(settings.rules), routing_of(settings, clock.now())
            alerting = AlertManager(rules, routing, None, clock=clock, runs_once=True)
        engine = Engine(
            clock, read_only=read_only, formats=log_formats(settings), ledger=ledger, alerting=alerting,
            is_dashboard=program == "dashboard",
        )  # fmt: skip
        super().__init__(engine, ledger)
        self.prices = settings.prices
        self.supervisor = Supervisor(
            settings,
            self._submit,
            ask=ask,
            ssh_config=ssh_config,
            login=lambda: self.wandb.credentials,
            followed=lambda: followed_directories(engine.state) | ending_directories(engine.state),
            files=lambda: read_once(engine.state),
            unwatched_since=lambda: unwatched_since(engine.state) if keeps else float("inf"),
            on_reading=on_reading,
        )
        samples = find_state_directory(os.environ).path / SAMPLES if keeps else None
        self.wandb = WandbCollector((), settings.wandb.every, self.engine.submit, self.engine.clock, samples=samples)
        self.enable_actions(self.supervisor.shell_of, self.supervisor.poll_queue_soon, alerting)
        self.enable_looks(Nodes(self.supervisor.shell_of, self.supervisor.python_of))
        self._exporter = (
            self._make_exporter(settings, ledger if records else None) if program == "alerts-only" else None
        )
        self._auto_requeue: AutoRequeue | None = None
        if program == "alerts-only" and self.alert_service is not None and ledger is not None and not read_only:
            is_leader = self.alert_service.notifications.is_leader
            self._auto_requeue = AutoRequeue(self.prepare, self.act, ledger, clock, is_leader, engine.submit)

    def _make_alert_service(
        self,
        settings: Settings,
        ledger: Ledger,
        clock: Clock,
        program: Program,
        ask: AskUser | None,
        ssh_config: Path | None,
    ) -> AlertService:
        """A dashboard is the standby of the daemon of another machine, if there is one. The imports, such as
        urllib3, are not needed without a service."""
        from trainmon.runtime.alert_service import AlertService, Sources
        from trainmon.runtime.standby import Standby

        def shell_of(host: str) -> Shell | None:
            """The connection of a watched host; raises HostUnreachable when that is down."""
            return self.supervisor.shell_of(host) if f"node:{host}" in self.engine.state.sources else None

        sources = Sources(lambda source: self.supervisor.poll_soon(source), lambda path, key: self.curve(path, key))
        host = settings.daemon.host
        if program != "dashboard" or host is None or host in (local_hostname(), "localhost"):
            return AlertService(settings, ledger, self._forward, clock, program, sources)
        connection = DaemonConnection(host, shell_of, ask, ssh_config)
        self._standby = Standby(
            settings, ledger, self._forward, clock, program, sources, host=host, connection=connection
        )
        return self._standby

    def _make_exporter(self, settings: Settings, ledger: Ledger | None) -> Exporter | None:
        """What offers metrics to Prometheus, if the config wants that. Only then is prometheus_client imported."""
        address, textfile = settings.daemon.metrics, settings.daemon.textfile
        if address is None and textfile is None:
            return None
        from trainmon.engine.metrics.exporter import Exporter

        directory = None if ledger is None else ledger.file.parent
        return Exporter(address, None if textfile is None else Path(textfile), directory, self.engine.clock)

    def start(self) -> None:
        if self._gives_notices and not self._starts_late:
            self.record(find_state_directory(os.environ).path / RECORDINGS, is_ring=True)
        super().start()
        if self._exporter is not None:
            self.engine.subscribe(self._exporter.observe)
            self._exporter.start()
        if self.alert_service is not None:
            self.engine.subscribe(self.alert_service.observe)
            if self._auto_requeue is not None:
                self.engine.subscribe(self._auto_requeue.observe)
            self.engine.subscribe(DumpReader(self.look).observe)
            if not self._starts_late:
                self.engine.subscribe(AutomaticLooks(self.look, self.engine.clock).observe)
                if self._is_drawn:
                    self.engine.subscribe(LogHistories(self.open_log, self.engine.submit).observe)
                self.alert_service.start()
        elif self._records:
            submit_stored_alerts(find_state_directory(os.environ).path, self._forward, self.engine.clock.now())
        self.supervisor.start()
        self.wandb.start()
        if self._copy is not None:
            self._copy.start()

    def stop(self) -> None:
        """Stop everything within seconds, whatever hangs."""
        self.leave(None, MOMENT)

    def leave(self, why: str | None, flush: Seconds) -> None:
        """Send what waits, for at most this long, and stop everything. With a `why`, notify people that nobody watches
        from now on."""
        self._prompts.close()
        if self._exporter is not None:
            self._exporter.stop()
        self.stop_actions()
        if self.alert_service is not None and flush > MOMENT:
            until = time.monotonic() + SOON  # a new alert waits a moment for others of its group
            while self.is_about_to_notify(SOON) and time.monotonic() < until:
                time.sleep(PAUSE)
        if self.alert_service is not None and why is not None:
            self.alert_service.announce_stop(why)
        if self._copy is not None:
            self._copy.stop()
        self.wandb.stop()
        self.supervisor.stop()
        self.engine.stop()
        if self.alert_service is not None:
            self.alert_service.stop(flush)
        super().stop()

    def reload(self, settings: Settings) -> bool:
        """Use these settings from now on. Hosts that are reached as before stay connected. False, and nothing has
        changed, when that needs another start.

        Raises: ConfigError: when they are not valid.
        """
        before = self._settings
        fixed = (name for name in settings.__struct_fields__ if name not in RELOADED)
        if self.alert_service is None or any(getattr(settings, name) != getattr(before, name) for name in fixed):
            return False
        self.alert_service.reload(settings)
        self.engine.formats = log_formats(settings)
        self.supervisor.reload(settings)
        self._settings, self.prices = settings, settings.prices
        return True

    def reload_most(self, settings: Settings) -> tuple[str, ...]:
        """Use these settings from now on, but for those that count from the next start: their names.

        Raises: ConfigError: when they are not valid.
        """
        kept = {name: getattr(self._settings, name) for name in settings.__struct_fields__ if name not in RELOADED}
        self.reload(replace(settings, **kept))
        return tuple(name for name, value in kept.items() if getattr(settings, name) != value)

    def trouble(self, problem: str | None) -> None:
        """Report why the config on the disk is not the one that runs; None when it is."""
        self.engine.submit(ConfigRefused(problem))
        if self.alert_service is not None:
            self.alert_service.notifications.report_trouble(problem)

    def is_about_to_notify(self, within: Seconds) -> bool:
        """Whether an alert waits for others of its group, and for no longer than that."""
        due = self.alert_service.alerting.due_in if self.alert_service is not None else None
        return due is not None and due < within

    def submit_request(self, request: AlertRequest) -> None:
        if self.alert_service is not None:
            self.alert_service.submit_request(request)
        else:
            super().submit_request(request)

    def _forward(self, event: Event) -> None:
        self.engine.submit(event)

    def _submit(self, event: Event) -> None:
        """Submit the events of hosts and queues; the W&B collector follows the same runs."""
        if isinstance(event, NoticeGiven):
            if not self._gives_notices or not is_first_time(find_state_directory(os.environ).path, event.key):
                return
            log.warning("%s", event.text)
        self.engine.submit(event)
        if isinstance(event, RunsChanged):
            self.wandb.follow(event.specs)

    def refresh(self) -> None:
        self.supervisor.refresh()
        self.wandb.refresh()
        if self._standby is not None:
            self._standby.daemon.refresh()

    def show_curves(self, runs: Collection[str], metrics: Sequence[str]) -> None:
        self.wandb.show_curves(runs, metrics)

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        self.wandb.save_samples(run, directory, reply)

    def poll_job(self, key: str) -> None:
        self.supervisor.poll_job(key)

    def view_node(self, node: str) -> None:
        self.supervisor.view_node(node)

    def ssh_command(self, node: str) -> tuple[str, ...] | str:
        return self.supervisor.ssh_command(node)

    def login(self, source: str) -> None:
        if self._standby is not None and source == f"daemon:{self._standby.daemon.host}":
            self._standby.daemon.login()
        else:
            self.supervisor.login(source)

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self._prompts.answer(prompt, answers)


log = logging.getLogger(__name__)


def ledger_of(settings: Settings, submit: Callable[[Event], None], environ: Mapping[str, str] = os.environ) -> Ledger:
    """The ledger, not started yet. When it starts, recent and open actions, and attempts, become part of the State;
    later, what other programs do."""
    found = find_state_directory(environ)
    if found.warning is not None:
        log.warning("%s", found.warning)

    def submit_actions(records: list[Record]) -> None:
        for record in records:
            submit(ActionChanged(record))

    return Ledger(
        found.path,
        lambda problem: submit(LedgerTrouble(problem)),
        on_actions=submit_actions,
        on_attempts=submit,
        keep=settings.ledger.keep if settings.ledger is not None else KEEP,
        is_network=found.is_network,
    )


def submit_stored_alerts(directory: Path, submit: Callable[[Event], None], now: Instant) -> None:
    """Submit the alerts, channels and recent attempts that the ledger holds."""
    try:
        found = alerts_now(directory, now)
        attempts = recent_attempts(directory, now - ATTEMPTS_OF, ATTEMPTS_AT_MOST)
        uses, _ = node_history(directory, now)
    except LedgerStuck as error:
        submit(LedgerTrouble(error.message))
        return
    submit(AlertsRestored(found.stored))
    submit(AttemptsRestored(tuple(attempts), tuple(uses)))
    if found.channels:
        submit(ChannelsChanged(found.channels))


def copy_address(settings: Settings) -> str | None:
    """The address of the server to which the ledger is copied.

    Raises: ConfigError: when it is missing or not valid, or psycopg is not installed.
    """
    if settings.ledger is None or settings.ledger.copy_to is None:
        return None
    try:
        url = resolve_secret(settings.ledger.copy_to, os.environ)
    except InvalidValue as wrong:
        raise ConfigError([f'[ledger]: "copy_to" {wrong}']) from wrong
    if not is_address(url):
        raise ConfigError(['[ledger]: "copy_to" must be an address such as postgresql://user:password@host/database'])
    if command := install_command("postgresql"):
        raise ConfigError(['[ledger]: "copy_to" needs psycopg, which is not installed'], hint=command)
    return url
