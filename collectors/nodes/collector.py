"""One host: its connection, its probe, and the probe's readings as events.

waiting → connecting → up → (retrying → connecting | held until a person logs in). A host that needed a prompt is not
redialled automatically: that avoids repeated pushes and locked accounts. A node that requires a job is off without one.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from collectors.assignment import Assigned
from collectors.nodes.steps import SHARES_GPUS, NoSrun, StepShell
from collectors.nodes.stream import START_TIMEOUT, ProbeStream
from collectors.probe import bundle
from trainmon.lib import Clock, HostUnreachable, LoginNeeded, LoginRefused, Seconds, TrainmonError
from trainmon.model import AnyReading, DisksReleased, Event, Hello, NodeReading, Source, SourceChanged, Spec
from trainmon.transport.shell import Shell

# ---- what refused logins and lost connections mean on nodes that require a running job (pam_slurm_adopt) ------------

MIN_DOUBT, MAX_DOUBT = 3.0, 30.0
"""After a loss of a node with our job, the job may have ended. The loss is in doubt until a poll of the queue at least
3 s later, at most for 30 s. An earlier poll may still show the job."""

NEEDS_A_JOB = "it accepts only users with a running job there"
NONE_OF_OURS = f"{NEEDS_A_JOB}, and you have none"
NEEDS_A_STEP = "it is read by a step of your running job there"

PAM = re.compile(r"pam_slurm|no active job", re.IGNORECASE)
"""Matches messages of pam_slurm_adopt and pam_slurm, before the connection ends or on standard error."""


Problem = tuple[str | None, str | None]
"""The error and hint of a host's row; while in doubt there is no error."""


class Backoff:
    """One host's refusals and losses, combined with the state of its queue."""

    def __init__(self, clock: Clock) -> None:
        self.has_own_job: Callable[[], bool | None] = lambda: None
        """Whether our user has a job there, by the last poll of the queue; None without a queue. Must not block."""
        self.poll_queue: Callable[[], None] = lambda: None
        """Requests an early poll of the queue. Must not block."""
        self.requirement = NEEDS_A_JOB
        """Why it cannot be reached without a job."""
        self.needs_job = False
        """Whether it has refused us since it was last up, because we have no job there."""
        self._clock = clock
        self._refusal: LoginRefused | None = None
        self._since: Seconds | None = None
        """The time of a loss whose reason is in doubt: the job may have ended."""
        self._has_doubted = False
        """Whether the current problem was already in doubt once."""
        self._problem: Problem = (None, None)
        self._was_logged_in = False
        self._refused_without_a_job = False

    def forget(self) -> None:
        """Reset: the host is up, or not needed."""
        self.needs_job = self._has_doubted = self._refused_without_a_job = False
        self._refusal = self._since = None
        self._was_logged_in = True

    def off_reason(self, error: TrainmonError) -> str | None:
        """The reason why the node is off and not failed: we have no job there. None for a real error."""
        self._refusal = error if isinstance(error, LoginRefused) and not requires_job(error) else None
        self.needs_job = self.needs_job or requires_job(error)
        self._refused_without_a_job = self._refusal is not None and not self.has_own_job()
        return self.requirement if self.needs_job and self.has_own_job() is None else self.lacks_job()

    def lacks_job(self) -> str | None:
        """The same after a poll of the queue. A plain refusal counts only after an earlier login: otherwise the key is
        wrong, and the node must not look idle."""
        may_require_job = self.needs_job or (self._refusal is not None and self._was_logged_in)
        if self.has_own_job() is not False or not may_require_job:
            return None
        self.needs_job, self._since = True, None
        if self._refusal is None:
            return NONE_OF_OURS.replace(NEEDS_A_JOB, self.requirement)
        return f"{self._refusal.message}; perhaps it requires a running job there"

    def may_log_in_again(self) -> bool:
        """Whether our job has started since the refusal: then one more login is tried."""
        if not self._refused_without_a_job or not self.has_own_job():
            return False
        self._refused_without_a_job = False
        return True

    def problem(self, name: str, error: TrainmonError) -> Problem:
        """The row's problem for an error. While in doubt there is no error yet, and the queue is polled."""
        self._problem = (error.message, error.hint or None)
        if self.needs_job:
            self._problem = (
                f"{NEEDS_A_JOB}, and does not see yours yet",
                f"your job may still be starting; try: ssh {name}",
            )
        may_explain = not self._has_doubted and not isinstance(error, NoSrun)
        if self._since is None and may_explain and self.has_own_job():
            self._has_doubted = True
            self._since = self._clock.monotonic()
            self.poll_queue()
        if self._since is None:
            return self._problem
        return None, f"{error.message}; checking the queue: your job there may have ended"

    def doubt_time(self) -> Seconds:
        """The time since the loss that is in doubt; 0 without doubt."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since

    def end_doubt(self) -> Problem | None:
        """End the doubt. Returns the row's problem; None if there was no doubt."""
        was_in_doubt, self._since = self._since is not None, None
        return self._problem if was_in_doubt else None


def requires_job(error: TrainmonError) -> bool:
    """Whether the node's own message says that it requires a job."""
    return PAM.search(error.message) is not None


def pause_before(tries: int) -> Seconds:
    """The pause before the next dial: 1 s doubling to 60 s, with jitter so that 64 hosts do not redial at once."""
    return min(60.0, 2.0 ** min(tries, 6)) * random.uniform(0.5, 1.0) + 0.5


# ---- one host --------------------------------------------------------------------------------------------------------

LEASE_EVERY = 20.0
"""Seconds between two lease bytes: the probe exits after 60 s without one."""

SILENCE_TIMEOUT = 45.0
"""Seconds without a line after which a probe is restarted; every probe writes in each period."""

STABLE_AFTER = 60.0
"""Seconds a connection must last before the pause between retries is reset."""

Dial = Callable[[], Shell]


class NodeCollector:
    """Keeps one host's probe running. The supervisor's thread calls its methods; they return at once."""

    def __init__(
        self, name: str, cluster: str, dial: Dial, submit: Callable[[Event], None], clock: Clock, *, python: str
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.python = python
        """The interpreter of its probe; empty if it runs the shell fallback."""
        self.is_dialled = True
        """Whether the host is another machine."""
        self.reads_files = True
        """Whether its probe reads logs and switch files; the shell fallback does not."""
        self.is_awaited = True
        """Whether its first connection is still being established."""
        self.wake: Callable[[], None] = lambda: None
        self.on_refusal: Callable[[], None] = lambda: None
        """Called when a login ended before any command ran. Must not block."""
        self.on_retry: Callable[[], None] = lambda: None
        """Called before a login that a person wants, or for which there is a new reason. Must not block."""
        self.on_reading: Callable[[AnyReading], None] = lambda reading: None
        """Gets each reading of its probe as it is. Must not block."""
        self.reached: Shell | None = None
        """Where its probe was last started; it may be closed."""
        self.failure: TrainmonError | None = None
        """Why it was not reached last; None while it is up, or another way to start its probe is still to be tried."""
        self.first_dial: Dial | None = None
        """How a host is dialled that nobody has named: without prompts, and only once until a person logs in."""
        self.failures: dict[str, TrainmonError] = {}
        """By name: why the only login of such a host failed. All collectors share it."""
        self.backoff = Backoff(clock)
        self._dial = dial
        self._submit = submit
        self._clock = clock
        self._start_hint = bundle.START_HINT.format(host=name, python=python)
        self._lock = threading.RLock()
        self._source = Source(name=f"node:{name}", kind="node", cluster=cluster)
        self._assigned = Assigned()
        self._shell: Shell | None = None
        self._stream: ProbeStream | None = None
        self._dialling = False
        self._stopped = False
        self._tries = 0
        self._retry_at: Seconds = 0.0
        self._up_since: Seconds = 0.0
        self._leased_at: Seconds = 0.0

    @property
    def is_up(self) -> bool:
        return self._source.phase == "up"

    @property
    def is_off(self) -> bool:
        return self._source.phase == "off"

    @property
    def problem(self) -> str | None:
        """Why it is not up, if that is an error."""
        return self._source.error

    @property
    def shell(self) -> Shell:
        """The live connection.

        Raises:
            HostUnreachable: when there is none, with the message of its row.
        """
        with self._lock:
            shell, source = self._shell, self._source
        if shell is None:
            hint = source.hint or ("it is connecting" if source.phase in ("waiting", "connecting") else "")
            raise HostUnreachable(self.name, source.error or f"{self.name} is not connected", hint=hint)
        return shell

    def watch(self, spec: Spec, implied: frozenset[str], stand_in: Spec | None = None) -> None:
        """Read this from now on, and the stand-in part for another host. A change is sent to the running probe."""
        with self._lock:
            if ended := self._assigned.stand_in_for(stand_in or Spec(), implied):
                # Its readings as a stand-in no longer count when the other host reads its files again.
                self._submit(DisksReleased(self.name, ended))
            before = self._assigned.spec
            if spec == before:
                return
            has_new_period = before is not None and spec.period != before.period
            self._assigned.spec, self._source = spec, replace(self._source, period=spec.period)
            if has_new_period and self.is_up:
                self._report()
            if self._stream is not None and self._stream.is_served:
                self._stream.write(bundle.spec_line(spec))

    def tick(self) -> None:
        """Do what is due: dial, renew the lease, restart a silent probe."""
        now = self._clock.monotonic()
        with self._lock:
            stream = self._stream
            if self.backoff.doubt_time() > MAX_DOUBT:
                self._end_doubt()
            if self._stopped or self._dialling or self._source.phase in ("held", "off"):
                return
            if self.first_dial is not None and self.name in self.failures:
                self._give_up()
                return
            if stream is None:
                if now >= self._retry_at:
                    # `start` raises when no thread can be started.
                    threading.Thread(target=self._dial_and_start, name=f"dial {self.name}", daemon=True).start()
                    self._dialling = True
                    is_first = not self._up_since and self._source.error is None  # no error yet: it may accept us
                    login_since = self._clock.now() if is_first else self._source.login_since
                    self._report(phase="connecting", retry_at=None, login_since=login_since)
                return
            if not self.is_up and (message := stream.not_started(now)) is not None:
                if now - stream.started_at > START_TIMEOUT:
                    self._on_end(stream, HostUnreachable(self.name, message, hint=stream.waiting_hint))
                    return
                if message != self._source.error:
                    self.failure = HostUnreachable(self.name, message, hint=stream.waiting_hint)
                    self._report(error=message, hint=stream.waiting_hint)
            if self.is_up and now - stream.received_at > SILENCE_TIMEOUT:
                message = f"connected, but no data from its probe for {SILENCE_TIMEOUT:.0f}s"
                self._on_end(stream, HostUnreachable(self.name, message))
                return
            if now - self._leased_at >= LEASE_EVERY and stream.is_served:
                self._leased_at = now
                stream.write(bundle.LEASE)
            if stream.reported != (stream.bad_lines, stream.stderr):
                stream.reported = (stream.bad_lines, stream.stderr)
                self._report(bad_lines=stream.bad_lines, stderr=stream.stderr)

    def refresh(self) -> None:
        """Dial now if it waits for a retry, was off without a job, or has refused our key: either may be fixed."""
        with self._lock:
            self._retry_at = 0.0
            was_refused = self._source.phase == "held" and not self._source.can_log_in
            if was_refused or (self.is_off and self.backoff.needs_job):
                self._wait_for_dial()

    def login(self) -> None:
        """Dial again, with prompts: a person requested it."""
        with self._lock:
            has_failed = self.first_dial is not None and self.failures.pop(self.name, None) is not None
            if has_failed or self._source.phase in ("held", "retrying") or (self.is_off and self.backoff.needs_job):
                self.first_dial = None
                self._wait_for_dial()

    def release(self, reason: str) -> None:
        """Disconnect: the host is not needed now. That is no error."""
        with self._lock:
            if not self._stopped:
                self.backoff.forget()
                self._turn_off(reason)

    def resume(self) -> None:
        """Connect again: the host is needed."""
        with self._lock:
            if self.is_off:
                self._wait_for_dial()

    def _wait_for_dial(self) -> None:
        self.on_retry()
        self._retry_at, self.failure = 0.0, None
        self._report(phase="waiting", error=None, hint=None)

    def queue_polled(self) -> None:
        """The queue was polled: whether we have a job there explains refusals and losses."""
        with self._lock:
            reason = self.backoff.lacks_job() if self._stream is None and not self._dialling else None
            if reason is not None:
                self._turn_off(reason)
            elif self.is_off and self.backoff.needs_job and self.backoff.has_own_job():
                self.resume()
            elif self.backoff.doubt_time() >= MIN_DOUBT:
                self._end_doubt()

    def stop(self) -> None:
        """Disconnect for good; never blocks."""
        with self._lock:
            self._stopped = True
            self._close()

    def _dial_and_start(self) -> None:
        """Dial and start the probe, on a thread of its own."""
        shell: Shell | None = None
        stream = ProbeStream(self.name, self._clock, self._send_code, self._on_reading, self._on_end, self._start_hint)
        try:
            shell = (self.first_dial or self._dial)()
            if isinstance(shell, StepShell):
                stream.awaits_step(shell.part.job)
            stream.received_at = stream.started_at = self._clock.monotonic()
            with self._lock:
                self._shell, self._stream = shell, stream  # before it starts: it may end before `stream` has returned
                if self.is_off or self._stopped:  # not needed any more
                    return
            command = shell.stream(bundle.command(self.python), stream)
            with self._lock:
                stream.command, self.reached = command, shell
                self._leased_at = self._clock.monotonic()
                self._send_code(stream)
        except Exception as failure:  # a bug must not end the collector silently: it becomes the source's error
            text = f"{type(failure).__name__}: {failure}"
            error = failure if isinstance(failure, TrainmonError) else HostUnreachable(self.name, text)
            if shell is not None:
                shell.close()
            prompted = isinstance(error, HostUnreachable) and error.prompted
            with self._lock:
                self._stream = self._shell = None
                self._retry_or_hold(error, prompted=prompted or (shell is not None and shell.prompted))
        finally:
            with self._lock:
                self._dialling = False
                if self._stopped or self.is_off:
                    self._close()

    def _retry_or_hold(self, error: TrainmonError, *, prompted: bool) -> None:
        self.failure = error
        if self.is_off:
            return
        if self.first_dial is not None and not self._up_since and isinstance(error, HostUnreachable):
            self.failures[self.name] = error
            self._give_up()
            return
        off_reason = self.backoff.off_reason(error)
        if off_reason is not None:
            self._turn_off(off_reason)
            return
        waits = isinstance(error, HostUnreachable) and error.waits_for_person
        if prompted or (isinstance(error, LoginNeeded | LoginRefused) and not waits):
            # Not dialled again before a person logs in, or has fixed what the server refuses.
            can_log_in = prompted or isinstance(error, LoginNeeded)
            fixed = "; then ".join(filter(None, (error.hint, "press r on it to connect again")))
            advice = (error.hint or "log in again").replace("log in", "press L to log in") if can_log_in else fixed
            self._report(phase="held", error=error.message, hint=advice, retry_at=None, can_log_in=can_log_in)
            return
        pause = pause_before(self._tries)
        self._tries += 1
        self._retry_at = self._clock.monotonic() + pause
        message, hint = self.backoff.problem(self.name, error)
        now, accepted = self._clock.now(), isinstance(error, HostUnreachable) and error.accepted and not self._up_since
        login_since = (self._source.login_since or now) if accepted else None
        self._report(phase="retrying", error=message, hint=hint, retry_at=now + pause, login_since=login_since)

    def _give_up(self) -> None:
        """Do not dial again until a person requests it: the host is off, and its row says why."""
        self._close()
        error = self.failure = self.failures[self.name]
        can_log_in = isinstance(error, HostUnreachable) and error.can_log_in
        self._report(phase="off", error=error.message, hint=error.hint or None, retry_at=None, can_log_in=can_log_in)

    def _end_doubt(self) -> None:
        """The queue does not explain the loss: report it as an error."""
        problem = self.backoff.end_doubt()
        if problem is not None and self._source.phase in ("retrying", "connecting"):
            self._report(error=problem[0], hint=problem[1])

    def _turn_off(self, reason: str) -> None:
        if not self.is_off or self._source.hint != reason:
            self._close()
            self._tries = 0
            self._report(phase="off", error=None, hint=reason, retry_at=None)

    def _close(self) -> None:
        stream, shell = self._stream, self._shell
        self._stream = self._shell = None
        if stream is not None and stream.command is not None:
            stream.command.close()
        if shell is not None:
            shell.close()

    # ---- called by the stream, on the event loop's thread ------------------------------------------------------------

    def _send_code(self, stream: ProbeStream) -> None:
        """Answer the greeting, which may come before `stream` has returned."""
        with self._lock:
            if stream is self._stream and stream.greeting and stream.command is not None and not stream.is_served:
                stream.is_served = True
                stream.write(bundle.payload(stream.greeting) + bundle.spec_line(self._assigned.spec or Spec()))

    def _on_reading(self, stream: ProbeStream, reading: AnyReading) -> None:
        with self._lock:  # no reading of a lost probe may follow the report of its loss
            if stream is not self._stream:
                return
            if not self.is_up:
                self._up_since, self.failure = self._clock.monotonic(), None
                self.backoff.forget()
                step_of = self._shell.part.job if isinstance(self._shell, StepShell) else None
                self._report(phase="up", error=None, hint=None, retry_at=None, login_since=None, step_of=step_of)
                self.wake()
            if isinstance(reading, Hello) and self.reads_files != (reading.python is not None):
                self.reads_files = reading.python is not None
                self.wake()
            _, arrived, left = stream.transit
            at = self._clock.now() - arrived  # the wait is no difference of the clocks
            self.on_reading(reading)
            for part, is_stand_in in self._assigned.parts(reading):
                self._submit(NodeReading(self.name, self.cluster, at, part, is_stand_in, under_way=left - arrived))
            if renamed := self._assigned.renamed(reading):
                self._submit(DisksReleased(self.name, renamed))

    def _on_end(self, stream: ProbeStream, error: TrainmonError, was_silent: bool = False) -> None:
        """The probe has ended or is silent. Python is not tried again if it failed without any output."""
        before = self.python
        if was_silent and not requires_job(error):
            self.python = bundle.NO_PYTHON
        with self._lock:
            if stream is not self._stream or self._stopped:
                return
            prompted = self._shell is not None and self._shell.prompted
            if not stream.greeting:
                self.on_refusal()
            self._close()
            if self.is_up and self._clock.monotonic() - self._up_since > STABLE_AFTER:
                self._tries = 0
            self._retry_or_hold(error, prompted=prompted)
            if self._source.phase == "retrying" and (self.python != before or SHARES_GPUS in error.message):
                self.failure = None
                self._report(phase="connecting", error=None, hint=None, retry_at=None)
        self.wake()

    def _report(
        self,
        *,
        phase: Literal["waiting", "connecting", "up", "retrying", "held", "off"] | None = None,
        **changes: str | float | None,
    ) -> None:
        if phase is not None:
            changes["phase"] = phase
            self.is_awaited = self.is_awaited and phase in ("waiting", "connecting")
        self._source = replace(self._source, **changes)
        self._submit(SourceChanged(self._source))
