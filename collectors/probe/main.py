"""The parent process on the node. It keeps the lease, forwards its worker's lines, and abandons a worker that hangs.

It uses its pipes and the marks of its children, and no file and no driver: nothing here can hang.
"""

import gc
import os
import select
import time

from collectors.probe.stdlib import Any, from_json, to_json
from collectors.probe.worker_process import Child, Mark, signal, write

LEASE = 60.0
PATIENCE = 5.0
"""An operation that takes longer is stuck; node_exporter's mount timeout is the same."""
FILE_OPERATIONS = ("disk:", "log:", "switch:", "ckpt:", "file:", "receipts:", "wandb:")
PATIENCE_ONCE_STUCK = 1.0
"""Once one path hangs, others on the same mount will. Ten of them must not delay the GPUs by 50 s."""
MAX_PATIENCE = 60.0
"""A driver without persistence mode takes 5 to 15 s to initialise 8 GPUs. A trial can wait for that."""
MIN_RETRY = 15.0
MAX_RETRY = 600.0
MAX_SPEC = 1 << 20


class Shutdown(Exception):
    """Ends the probe; the message is the reason."""


class StuckOperation:
    """An operation that did not return, and the process that is left with it."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.why = ""
        self.tries = 0
        self.retry_at = 0.0
        self.held_by = None  # type: Child | None


class Probe:
    """One run of the probe, from the first spec until the client disconnects."""

    def __init__(self) -> None:
        self.buffer = b""
        self.spec = {}  # type: dict[str, Any]
        self.spec_line = b""
        self.saved_state = {}  # type: dict[str, str]
        self.main = None  # type: Child | None
        self.trial = None  # type: Child | None
        self.stuck = {}  # type: dict[str, StuckOperation]
        self.learned_patience = {}  # type: dict[str, float]
        self.killed = []  # type: list[Child]
        self.crashes = 0
        self.troubles = set()  # type: set[str]
        self.restart_at = 0.0
        self.period, self.standard_patience = 2.0, PATIENCE
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)

    # -- the client ---------------------------------------------------------------------------------------------

    def read_client(self) -> None:
        """Read specs. Every byte renews the lease.

        Raises:
            Shutdown: when the client closed the connection, or sent a spec that is too long.
        """
        data = os.read(0, 65536)
        if not data:
            raise Shutdown("the client closed the connection")
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        if len(self.buffer) > MAX_SPEC:
            raise Shutdown("a spec of more than 1 MiB was sent")
        for line in lines:
            if line.startswith(b"{"):
                self.configure(line)
        signal.setitimer(signal.ITIMER_REAL, float(self.spec.get("lease", LEASE)))

    def configure(self, line: bytes) -> None:
        try:
            spec = dict(from_json(line.decode("utf-8")))  # type: ignore[call-overload]
            period, patience = float(spec.get("period", 2.0)), float(spec.get("patience", PATIENCE))
        except (ValueError, TypeError) as error:
            self.report_trouble("spec", "a spec cannot be read: %s" % error)
            return
        self.clear_trouble("spec")
        self.spec, self.spec_line, self.period, self.standard_patience = spec, line, period, patience
        if self.main is None:
            self.main = self.fork(None)
        else:
            self.main.send(b"S" + line + b"\n")

    def report_trouble(self, about: str, text: str) -> None:
        self.troubles.add(about)
        self.emit({"k": "trouble", "part": "probe", "text": text})

    def clear_trouble(self, about: str) -> None:
        if about in self.troubles:
            self.troubles.remove(about)
            if not self.troubles:
                self.emit({"k": "trouble", "part": "probe", "text": None})

    def emit(self, line: "dict[str, Any]") -> None:
        write(to_json(dict(line, v=1, t=round(time.time(), 3))).encode() + b"\n")

    # -- the workers --------------------------------------------------------------------------------------------

    def fork(self, trial_of: "str | None") -> Child:
        spec, states, stuck = self.spec_line, dict(self.saved_state), {} if trial_of else self.stuck_status()

        def work(mark: Mark) -> None:
            from collectors.probe import worker

            worker.Worker(spec, stuck, states, trial_of, mark).run()

        child = Child(work, trial_of)
        self.poll.register(child.lines, select.POLLIN)
        return child

    def stuck_status(self) -> "dict[str, Any]":
        """What a worker must know of the stuck operations: since when, and why."""
        return {name: [stuck.since, stuck.why] for name, stuck in self.stuck.items()}

    def relay(self, child: Child) -> None:
        """Forward lines. Those that begin with `!` are for this process: the state for the next worker."""
        lines = child.received()
        if lines is None:
            self.worker_ended(child)
            return
        if child is self.main:
            self.clear_trouble("worker")
        if not (lines.startswith(b"!") or b"\n!" in lines):
            write(lines)
            return
        for line in lines.splitlines(True):
            if line.startswith(b"!done"):
                child.is_done = True
            elif line.startswith(b"!"):
                key, _, value = line[1:].decode().rstrip().partition(" ")
                self.saved_state[key] = value
            else:
                write(line)

    def discard(self, child: Child) -> None:
        self.poll.unregister(child.lines)
        child.kill()
        os.close(child.requests)
        os.close(child.lines)
        self.killed.append(child)
        if child is self.trial:
            self.trial = None
        else:
            self.main = None

    def worker_ended(self, child: Child) -> None:
        """A worker ended by itself: a trial that succeeded, or a crash."""
        since, name, _ = child.mark.read()
        self.discard(child)
        if child.is_done:  # it answers again: back into the main worker, with the patience that it needed
            name = child.trial_of or ""
            self.learned_patience[name] = max(self.standard_patience, 2 * (time.monotonic() - child.started_at))
            del self.stuck[name]
            if self.main is not None:
                self.main.send(b"K" + to_json(self.stuck_status()).encode() + b"\n")
            return
        if child.trial_of or since:
            self.abandon(child, name, "crashed")
        if child.trial_of is None:
            self.crashes = 1 if time.monotonic() - child.started_at > MAX_RETRY else self.crashes + 1
            self.restart_at = time.monotonic() + min(60, 2**self.crashes)
            where = " in " + name if since else ""
            self.report_trouble("worker", "the probe's worker crashed (%s)%s" % (child.exit_text(), where))

    def abandon(self, child: Child, name: str, why: str) -> None:
        """Leave an operation out until its process has exited and a trial of it succeeds."""
        now = time.monotonic()
        stuck = self.stuck.setdefault(child.trial_of or name, StuckOperation(child.mark.read()[0] or now))
        stuck.retry_at = now + min(self.spec.get("retry", MIN_RETRY) * 2**stuck.tries, MAX_RETRY)
        stuck.tries += 1
        stuck.why, stuck.held_by = why, child

    # -- time ---------------------------------------------------------------------------------------------------

    def patience(self, child: Child, name: str) -> float:
        """How long an operation may take. A trial has more time: nothing waits for it."""
        standard = self.standard_patience
        if child.trial_of:
            return min(standard * 2.0 ** self.stuck[child.trial_of].tries, MAX_PATIENCE)
        if self.stuck and name.startswith(FILE_OPERATIONS):
            standard = min(standard, PATIENCE_ONCE_STUCK)
        return max(self.learned_patience.get(name, 0.0), standard)

    def check_workers(self) -> None:
        """Abandon what is overdue, start what is due."""
        for child in (self.main, self.trial):
            since, name, _ = child.mark.read() if child else (0.0, "", 0)
            if child is None or not since or time.monotonic() - since < self.patience(child, name):
                continue
            if child.mark.read()[0] == since:  # it did not continue meanwhile
                self.abandon(child, name, "hung")
                self.discard(child)
        self.killed = [child for child in self.killed if not child.has_exited()]
        now = time.monotonic()
        if self.main is None and self.spec and now >= self.restart_at:
            self.main = self.fork(None)
        if self.trial is None:
            for name, stuck in self.stuck.items():
                if now >= stuck.retry_at and (stuck.held_by is None or stuck.held_by.has_exited()):
                    self.trial = self.fork(name)
                    break

    def wait(self) -> None:
        """Wait for input. While an operation runs, its worker is checked five times a second."""
        is_busy = self.main is None or self.main.mark.read()[0] or self.trial is not None
        ready = self.poll.poll(1000 * (0.2 if is_busy else self.period + 0.5) if self.spec else None)
        for fd, _ in ready:
            if fd == 0:
                self.read_client()
            for child in (self.main, self.trial):
                if child is not None and child.lines == fd:
                    self.relay(child)
        if not ready or self.stuck or self.killed:
            self.check_workers()

    def kill(self) -> None:
        for child in (self.main, self.trial):
            if child is not None:
                child.kill()

    def end(self, why: str) -> None:
        """Kill the workers, and report the reason if the client still reads."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.kill()
        output = select.poll()
        output.register(1, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in output.poll(0)):
            self.emit({"k": "bye", "why": why})


def main() -> None:
    """Runs until the client has disconnected."""
    os.nice(19)
    if hasattr(gc, "freeze"):
        gc.freeze()  # novm Python 3.7
    probe = Probe()

    def lease_expired(*_: object) -> None:
        raise Shutdown("the client has been silent for %gs" % probe.spec.get("lease", LEASE))

    signal.signal(signal.SIGALRM, lease_expired)
    signal.setitimer(signal.ITIMER_REAL, LEASE)
    try:
        try:
            while True:
                probe.wait()
        except Shutdown as shutdown:
            probe.end(str(shutdown))
    except BrokenPipeError:
        probe.kill()
    os._exit(0)
