"""The daemon on another machine: its alerts as it prints them, and what a person says of them, handed to it.

It is asked over a Shell, by `trainmon-tui status --json`, on a thread of its own. While it answers and watches, it
alone tells people. When it has been silent for long enough, or has said so long that nobody watches there, `gives` is
called: then this machine may tell. Before anything else is said of a daemon that is back, `takes` is called.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from collectors.daemon.protocol import request_argv, shift_times
from trainmon.engine.snapshot_alerts import Status, read_status
from trainmon.lib import (
    Clock,
    CommandFailed,
    HostUnreachable,
    Instant,
    LoginNeeded,
    LoginRefused,
    Seconds,
    TrainmonError,
    clean,
)
from trainmon.model import (
    AlertRequest,
    AlertRequested,
    AlertsReported,
    Event,
    Leadership,
    LeadershipChanged,
    Source,
    SourceChanged,
)
from trainmon.transport.shell import Completed, Shell

log = logging.getLogger(__name__)

TIMEOUT: Seconds = 20.0
"""For one answer: a busy bastion starts Python in seconds, not in a minute."""

SOON: Seconds = 5.0
"""Between two questions while it does not answer, or after somebody said something: the config's own pace at most."""

SILENT_PERIODS = 3
"""So long it must say that nobody watches there before this machine tells: a restart takes seconds."""

LEAST: Seconds = 10.0
"""The same, where it is asked every second."""

UNREACHED_PERIODS = 6
"""So long it must not answer at all: it may well be there, and tell."""

NOT_FOUND = 127
SKEWED: Seconds = 2.0
VERSION = 1
"""Of what `status --json` prints."""


class DaemonCollector:
    """`shell_of` dials, or has dialled; it may take its time. `gives` and `takes` are called on our own thread."""

    def __init__(
        self,
        host: str,
        command: Sequence[str],
        every: Seconds,
        shell_of: Callable[[], Shell],
        submit: Callable[[Event], None],
        clock: Clock,
        *,
        takes: Callable[[Status], None],
        gives: Callable[[str], None],
    ) -> None:
        self.host = host
        self._command = tuple(command)
        self._every = every
        self._shell_of = shell_of
        self._submit = submit
        self._clock = clock
        self._takes, self._gives = takes, gives
        self._source = Source(name=f"daemon:{host}", kind="daemon", cluster="", period=every)
        self._shell: Shell | None = None
        self._through_login = False
        """Whether it is only found by a login shell."""
        self._orders: deque[AlertRequest] = deque(maxlen=256)
        self._asked, self._answered = 0, 0
        """Numbers of the question that was begun, and of the last that is answered."""
        self._done = threading.Condition()
        self._next: Seconds = clock.monotonic()
        self._heard: Seconds = clock.monotonic()
        """When it was last known to tell people; at first, when we began to ask."""
        self._why, self._patience = "it does not answer", max(LEAST, UNREACHED_PERIODS * every)
        """Why it is not known to tell people, and how long that may last before this machine does."""
        self._is_shown = True
        """Whether what it says is waited for, and shown in place of our own."""
        self._is_held = False
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"daemon {host}", daemon=True)
        self.is_on_duty: bool | None = None
        """Whether it tells people: None while nobody knows yet."""

    # ---- from any thread ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._tell(phase="connecting")
        self._submit(
            LeadershipChanged(Leadership(holder="daemon", where=self.host, words=f"{self.host} has not answered yet"))
        )
        self._thread.start()

    def stop(self) -> None:
        """Let go; a command that hangs is left to its own end."""
        self._stopping.set()
        self._wake.set()
        self._drop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(0.3)

    def order(self, order: AlertRequest) -> None:
        """Have what a person said carried out there; what came of it is told in State.duty."""
        self._orders.append(order)
        self._wake.set()

    def refresh(self) -> None:
        """A person wants to see it now."""
        self._next = self._clock.monotonic()
        self._wake.set()

    def login(self) -> None:
        """A person asks: dial again, prompts and all."""
        self._is_held = False
        self.refresh()

    def answers(self, patience: Seconds) -> bool:
        """Ask now, and say whether it tells people: the last look before this machine does. Waits for the answer."""
        if self._is_held:
            return False
        with self._done:
            wanted = self._asked + 1
            self._next = self._clock.monotonic()
            self._wake.set()
            self._done.wait_for(lambda: self._answered >= wanted or self._stopping.is_set(), patience)
        return self.is_on_duty is True

    # ---- its own thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                wait = self.step()
            except Exception:  # one bad answer must not end the asking, or nobody would ever take over
                log.exception("the daemon on %s could not be asked", self.host)
                wait = self._every
            self._wake.wait(wait)
            self._wake.clear()

    def step(self) -> Seconds:
        """Do what is due. Returns the seconds until it should be called again."""
        while self._orders and not self._stopping.is_set():
            self._carry_out(self._orders.popleft())
        now = self._clock.monotonic()
        if now < self._next or self._is_held:
            self._judge_silence()
            return max(0.1, min(SOON, self._next - now)) if not self._is_held else self._every
        self._next = now + self._every
        with self._done:
            self._asked += 1
        try:
            self._ask()
        finally:
            self._settled()
        return max(0.1, self._next - self._clock.monotonic())

    def _settled(self) -> None:
        with self._done:
            self._answered = self._asked
            self._done.notify_all()

    def _ask(self) -> None:
        try:
            is_watched, status = self.look()
        except TrainmonError as error:
            self._failed(error)
            return
        if is_watched:
            self._told(status)
        else:
            self._nobody(status)

    def look(self) -> tuple[bool, Status]:
        """Ask now: whether somebody watches there, and all that it says. Raises TrainmonError."""
        done = self._execute((*self._command, "status", "--json"))
        return done.status != 3, self._read(done)

    def _execute(self, argv: Sequence[str]) -> Completed:
        """Run it there; where a shell without a terminal does not find it, through a login shell from then on."""
        shell = self._connected()
        try:
            done = shell.run(self._line(argv), timeout=TIMEOUT)
            if done.status == NOT_FOUND and not self._through_login:
                self._through_login = True
                done = shell.run(self._line(argv), timeout=TIMEOUT)
        except HostUnreachable:
            self._drop()
            raise
        if done.status == NOT_FOUND:
            self._through_login = False
            hint = f'say where it is: [daemon] command = ["/path/on/{self.host}/trainmon-tui"]'
            raise CommandFailed(f"{self.host}: {argv[0]} is not found there", hint=hint)
        return done

    def _line(self, argv: Sequence[str]) -> tuple[str, ...]:
        return ("bash", "-lc", 'exec "$@"', "bash", *argv) if self._through_login else tuple(argv)

    def _connected(self) -> Shell:
        if self._shell is None:
            self._tell(phase="connecting")
            self._shell = self._shell_of()
        return self._shell

    def _drop(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()

    def _read(self, done: Completed) -> Status:
        said = clean(done.stderr.decode("utf-8", "replace").strip(), 300)
        try:
            status = read_status(done.stdout)
        except msgspec.DecodeError as error:
            if done.status not in (0, 1, 3) or not done.stdout.strip():
                words = said or f"it ended with {done.status}"
                raise CommandFailed(f"{self.host}: {self._command[0]} status: {words}") from error
            raise CommandFailed(f"{self.host}: its status is not understood: {error}") from error
        if status.version != VERSION:
            hint = "install the same version on both machines"
            raise CommandFailed(f"{self.host}: its status is of version {status.version}, not {VERSION}", hint=hint)
        return status

    # ---- what it said ------------------------------------------------------------------------------------------------

    def _told(self, status: Status) -> None:
        """It watches and tells people."""
        now = self._clock.now()
        off = now - status.at
        status = shift_times(status, off) if abs(off) > SKEWED else status
        was, self.is_on_duty = self.is_on_duty, True
        self._is_shown, self._heard = True, self._clock.monotonic()
        if was is not True:
            self._settled()  # whoever waits for the answer to send something must let go of it now
            self._takes(status)
        self._tell(phase="up", seen_at=now, error=None, hint=None)
        duty = status.duty
        at = status.at if duty.last_tick_at is None else duty.last_tick_at
        self._on_duty(at, duty.words, duty.started_at)
        self._submit(AlertsReported((*status.alerts, *status.ended), status.silences, status.channels, at))

    def _nobody(self, status: Status) -> None:
        """It answers, and nobody watches there, or what watches hangs: that is no restart, and has lasted already."""
        words = status.duty.words or "nobody watches there"
        if status.duty.holder != "nobody" and status.duty.last_tick_at is not None:
            self._heard = min(self._heard, self._clock.monotonic() - (status.at - status.duty.last_tick_at))
        self._tell(phase="up", seen_at=self._clock.now(), error=f"{self.host}: {words}",
                   hint="start it there: trainmon-tui service systemd")  # fmt: skip
        self._silent(words, SILENT_PERIODS)

    def _failed(self, error: TrainmonError) -> None:
        refused = isinstance(error, LoginNeeded | LoginRefused)
        self._is_held = refused or (isinstance(error, HostUnreachable) and error.prompted)
        self._tell(phase="held" if self._is_held else "retrying", error=error.message, hint=error.hint or None)
        self._silent(error.message.removeprefix(f"{self.host}: "), UNREACHED_PERIODS)

    def _silent(self, why: str, periods: int) -> None:
        """It did not say that it tells people: wait, and when that has lasted, let this machine do it."""
        now = self._clock.monotonic()
        self._next = min(self._next, now + SOON)
        self._why, self._patience = why, max(LEAST, periods * self._every)
        if self.is_on_duty is True:
            self._on_duty(self._seen_at(), why)
        self._judge_silence()

    def _judge_silence(self) -> None:
        """A first answer is waited for one period; then we show what we find ourselves, and tell it when it is time."""
        silent = self._clock.monotonic() - self._heard
        if self.is_on_duty is None and self._is_shown and silent >= self._every:
            self._is_shown = False
            self._submit(LeadershipChanged(Leadership(where=self.host, words=clean(f"{self.host}: {self._why}", 300))))
        if self.is_on_duty is not False and silent >= self._patience:
            self.is_on_duty = False
            self._gives(self._why)

    def _on_duty(self, at: Instant, words: str | None, since: Instant | None = None) -> None:
        words = None if words is None else clean(words, 300)
        self._submit(LeadershipChanged(Leadership(holder="daemon", where=self.host, at=at, words=words, since=since)))

    # ---- what is said to it ------------------------------------------------------------------------------------------

    def _carry_out(self, order: AlertRequest) -> None:
        argv = request_argv(order)
        if argv is None:
            return
        try:
            done = self._execute((*self._command, *argv))
            if done.status != 0:
                said = clean(done.stderr.decode("utf-8", "replace").strip(), 300).removeprefix("Error: ")
                raise CommandFailed(said or f"it ended with {done.status}")
        except TrainmonError as error:
            log.warning("%s on %s: %s", argv[0], self.host, error)
            if self.is_on_duty is True:
                why = error.message.removeprefix(f"{self.host}: ")
                self._on_duty(self._seen_at(), f"{argv[0]} did not reach {self.host}: {why}")
                self._next = self._clock.monotonic() + SOON  # long enough to be read
            else:
                self._submit(AlertRequested(order))
        else:
            self._next = self._clock.monotonic()

    def _seen_at(self) -> Instant:
        return self._clock.now() - (self._clock.monotonic() - self._heard)

    def _tell(self, **facts: object) -> None:
        source = replace(self._source, **facts)
        if source != self._source:
            self._source = source
            self._submit(SourceChanged(source))
