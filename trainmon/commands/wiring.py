"""The parts of one start, joined: engine, senses and questions. Both are the Backend of the dashboard."""

from __future__ import annotations

import getpass
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from collectors.daemon_line import DaemonLine
from collectors.dialling import Ask as Asking
from collectors.dialling import here
from collectors.supervisor import Supervisor
from collectors.wandb import Watcher
from trainmon.actions import Actor
from trainmon.alerting import Alerting
from trainmon.clock import Clock, Seconds, SystemClock
from trainmon.commands.keeping import ledger_of
from trainmon.commands.standing_by import StandingBy
from trainmon.commands.telling import Program, Telling, judging, recall, senses
from trainmon.config import Settings, formats
from trainmon.engine import Engine
from trainmon.ledger import Ledger
from trainmon.model import Event, LedgerTrouble, RunsChanged, Series, State
from trainmon.model_actions import Action, Ask, Plan, Refusal
from trainmon.model_alerts import Order, Ordered, Silence
from trainmon.model_wandb import Curve
from trainmon.notify.office import Office
from trainmon.perform import Performer
from trainmon.prompts import Prompts
from trainmon.routing import Routing
from trainmon.rules import RULES
from trainmon.shell import Shell
from trainmon.state_directory import find

SAMPLES = "samples"
"""Where, beside the ledger, a sample of each run is kept ready."""

SOON: Seconds = 2.0
PAUSE: Seconds = 0.05

MOMENT: Seconds = 1.0
"""For what waits to be sent when a person quits; the rest waits in the ledger for whoever watches next."""


class Joined:
    """What the dashboard and the other commands hold: an engine, what feeds it, what acts, and what is written down."""

    def __init__(self, engine: Engine, ledger: Ledger | None = None) -> None:
        self.engine = engine
        self._ledger = ledger
        self._performer: Performer | None = None

    def start(self) -> None:
        self.engine.start()
        if self._ledger is not None:
            self._ledger.start()

    def stop(self) -> None:
        self.rest()
        self.engine.stop()
        if self._ledger is not None:
            self._ledger.stop()

    def rest(self) -> None:
        """Begin nothing more; what is being done has a moment to end, while its connection is still there."""
        if self._performer is not None:
            self._performer.stop()
            self._performer = None

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        return self.engine.subscribe(sink)

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        return self.engine.history(subject, metric, span)

    def curve(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        return self.engine.curve(path, key, epoch, start)

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        """W&B is not asked."""
        reply(f"{run} has no samples")

    def refresh(self) -> None:
        """Nothing waits to be looked at again."""

    def login(self, source: str) -> None:
        """Nothing asks for a login."""

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        """Nothing was asked."""

    def prepare(self, ask: Ask, reply: Callable[[Plan], None]) -> None:
        """Read what the plan of an action needs, and hand the plan to reply; see Performer."""
        if self._performer is not None:
            self._performer.prepare(ask, reply)
            return
        refusals = tuple(Refusal(subject=name, why="nothing is done from here") for name in ask.subjects)
        reply(Plan(ask=ask, refusals=refusals))

    def act(self, actions: Sequence[Action]) -> None:
        """Do what a plan showed."""
        if self._performer is not None:
            self._performer.act(actions)

    def perform(self, shell_of: Callable[[str], Shell], hurry: Callable[[str], None]) -> None:
        """Act from now on, over these connections; `hurry` has a cluster's queue looked at."""
        self._performer = Performer(
            shell_of,
            lambda: self.engine.state,
            self.engine.submit,
            ledger=self._ledger,
            hurry=hurry,
            clock=self.engine.clock,
            actor=Actor(who=who(), from_host=here()),
            read_only=self.engine.state.read_only,
        )

    def look_at_job(self, key: str) -> None:
        """No scheduler is asked."""

    # ---- what a person says of alerts ----

    def acknowledge(self, alert: str, why: str = "") -> None:
        self.order(Order(verb="ack", at=self.engine.clock.now(), by=who(), alert=alert, why=why))

    def mute(self, silence: Silence) -> None:
        now = self.engine.clock.now()
        made = replace(silence, id=secrets.token_hex(4), by=who(), made_at=now)
        self.order(Order(verb="mute", at=now, by=made.by, silence=made, why=made.why))

    def unmute(self, silence: str) -> None:
        self.order(Order(verb="unmute", at=self.engine.clock.now(), by=who(), alert=silence))

    def order(self, order: Order) -> None:
        """Have it carried out by whoever judges the alerts: here, that is the engine."""
        self.engine.submit(Ordered(order))


class Watching(Joined):
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
        """Whether nothing is told, or remembered, before all has been seen: see `look_once`."""
        self._prompts = Prompts(self._say)
        ledger = ledger_of(settings, self._say) if keeps else None
        self.telling: Telling | None = None
        if program is not None and ledger is not None:
            self.telling = self._telling(settings, ledger, clock, program, self._asking(prompts), ssh_config)
        alerting = self.telling.alerting if self.telling is not None else judging(settings, clock)
        engine = Engine(clock, read_only=read_only, formats=formats(settings), ledger=ledger, alerting=alerting)
        super().__init__(engine, ledger)
        ask = self._asking(prompts)
        self._supervisor = Supervisor(settings, self._submit, ask=ask, ssh_config=ssh_config)
        samples = find(os.environ).path / SAMPLES if keeps else None
        self._wandb = Watcher((), settings.wandb.every, self.engine.submit, self.engine.clock, samples=samples)
        self.perform(self._supervisor.shell_of, self._supervisor.hurry_slurm)

    def _asking(self, prompts: bool) -> Asking | None:
        return self._prompts.ask if prompts else None

    def _telling(
        self,
        settings: Settings,
        ledger: Ledger,
        clock: Clock,
        program: Program,
        ask: Asking | None,
        ssh_config: Path | None,
    ) -> Telling:
        """A dashboard leaves it to the daemon of another machine, where there is one."""
        host = settings.daemon.host
        if program != "dashboard" or host is None or host in (here(), "localhost"):
            return Telling(settings, ledger, self._say, clock, program=program, hurry=self._hurry, curve=self._curve)
        line = DaemonLine(host, self._watched, ask, ssh_config)
        return StandingBy(
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
            recall(find(os.environ).path, self._say, self.engine.clock.now())
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
        while self.is_about_to_tell and time.monotonic() < until:
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

    @property
    def is_about_to_tell(self) -> bool:
        """Whether something waits a moment for others of its kind before it is told."""
        due = self.telling.alerting.due_in if self.telling is not None else None
        return due is not None and due < SOON

    def order(self, order: Order) -> None:
        if self.telling is not None:
            self.telling.order(order)
        else:
            super().order(order)

    def _say(self, event: Event) -> None:
        self.engine.submit(event)

    def _curve(self, path: str, key: str) -> Curve:
        return self.engine.curve(path, key)

    def _hurry(self, source: str) -> None:
        self._supervisor.hurry(source)

    def _submit(self, event: Event) -> None:
        """What the hosts and queues say; the runs that there are by their word are those of W&B, too."""
        self.engine.submit(event)
        if isinstance(event, RunsChanged):
            self._wandb.follow(event.specs)

    def refresh(self) -> None:
        self._supervisor.refresh()
        self._wandb.refresh()
        if isinstance(self.telling, StandingBy):
            self.telling.daemon.refresh()

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        self._wandb.save_samples(run, directory, reply)

    def look_at_job(self, key: str) -> None:
        self._supervisor.look_at_job(key)

    def login(self, source: str) -> None:
        if isinstance(self.telling, StandingBy) and source == f"daemon:{self.telling.daemon.host}":
            self.telling.daemon.login()
        else:
            self._supervisor.login(source)

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self._prompts.answer(prompt, answers)


def who() -> str:
    """The person at this machine, as far as it knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may be in no list
        return f"user {os.getuid()}"


class Demonstration(Joined):
    """A simulated cluster, through the same engine, rules and office; a story may be put first. What is done there is
    kept in a ledger of its own, which goes with it; what is told goes to channels that are simulated, too."""

    def __init__(self, story: str | None = None, *, read_only: bool = False) -> None:
        from collectors.demo import Demo
        from collectors.demo.channels import ROUTES, channels

        self._kept = tempfile.TemporaryDirectory(prefix="trainmon-demo-", ignore_cleanup_errors=True)
        ledger = Ledger(Path(self._kept.name), lambda words: self.engine.submit(LedgerTrouble(words)))
        self._office = Office(ledger, channels(), self._say, routes=ROUTES, program="demo")
        alerting = Alerting(tuple(rule() for rule in RULES), Routing(routes=ROUTES), self._office)
        super().__init__(
            Engine(SystemClock(), demo=True, read_only=read_only, ledger=ledger, alerting=alerting), ledger
        )
        self._demo = Demo(self.engine.submit, story=story)
        self.perform(self._demo.shell_of, self._demo.hurry)

    def start(self) -> None:
        super().start()
        self.engine.subscribe(self._office.tick)
        self._office.start()
        self._demo.start()

    def stop(self) -> None:
        self.rest()
        self._demo.stop()
        self.engine.stop()
        self._office.stop(0.0)
        super().stop()
        self._kept.cleanup()

    def order(self, order: Order) -> None:
        self._office.order(order)

    def _say(self, event: Event) -> None:
        self.engine.submit(event)

    def refresh(self) -> None:
        self._demo.refresh()

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        self._demo.save_samples(run, directory, reply)

    def login(self, source: str) -> None:
        self._demo.login(source)

    def look_at_job(self, key: str) -> None:
        self._demo.look_at_job(key)
