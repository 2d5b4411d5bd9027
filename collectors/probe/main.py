"""The parent on the node: keeps the lease, relays its worker's lines, and abandons a worker that hangs.

It touches nothing that can hang: its pipes and its children's marks, no file and no driver.
"""

import gc
import os
import select
import time

from collectors.probe import ndjson
from collectors.probe.worker_process import Child

try:
    import _signal as signal  # type: ignore[import-not-found]  # without enum and collections: 1 MiB less
except ImportError:
    import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from collectors.probe.progress_mark import Mark

LEASE = 60.0
PATIENCE = 5.0
"""An operation that takes longer is stuck (node_exporter's mount timeout, too)."""
FILES = ("disk:", "log:", "switch:", "ckpt:")
NEXT_PATIENCE = 1.0
"""Once one path hangs, others on the same mount will: ten of them must not keep the GPUs from being read for 50 s."""
LONGEST_PATIENCE = 60.0
"""A driver without persistence mode takes 5 to 15 s to initialise 8 GPUs: it gets there, in a trial."""
FIRST_RETRY = 15.0
LAST_RETRY = 600.0
LONGEST_SPEC = 1 << 20


class Ended(Exception):
    """Why the probe ends, in words."""


class Stuck:
    """An operation that did not come back, and the process that is left with it."""

    def __init__(self, since: float, why: str) -> None:
        self.since = since
        self.why = why
        self.tries = 0
        self.retry_at = 0.0
        self.left_in = None  # type: Child | None


class Probe:
    """One run of the probe, from the first spec to the client's end."""

    def __init__(self) -> None:
        self.typed = b""
        self.spec = {}  # type: dict[str, Any]
        self.spec_line = b""
        self.memory = {}  # type: dict[str, str]
        self.main = None  # type: Child | None
        self.trial = None  # type: Child | None
        self.stuck = {}  # type: dict[str, Stuck]
        self.learnt = {}  # type: dict[str, float]
        self.gone = []  # type: list[Child]
        self.crashes = 0
        self.complaints = set()  # type: set[str]
        self.restart_at = 0.0
        self.tick, self.standard = 2.0, PATIENCE
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)

    # -- the client ---------------------------------------------------------------------------------------------

    def hear(self) -> None:
        """Bytes from the client: the lease, and specs."""
        data = os.read(0, 65536)
        if not data:
            raise Ended("the client closed the connection")
        signal.setitimer(signal.ITIMER_REAL, float(self.spec.get("lease", LEASE)))
        lines = (self.typed + data).split(b"\n")
        self.typed = lines.pop()
        if len(self.typed) > LONGEST_SPEC:
            raise Ended("a spec of more than 1 MiB was sent")
        for line in lines:
            if line.startswith(b"{"):
                self.obey(line)

    def obey(self, line: bytes) -> None:
        try:
            spec = dict(ndjson.decoded(line.decode("utf-8")))  # type: ignore[call-overload]
            self.tick, self.standard = float(spec.get("period", 2.0)), float(spec.get("patience", PATIENCE))
        except (ValueError, TypeError) as error:
            self.complain("spec", "a spec that cannot be read: %s" % error)
            return
        self.content("spec")
        self.spec, self.spec_line = spec, line
        signal.setitimer(signal.ITIMER_REAL, float(spec.get("lease", LEASE)))
        if self.main is None:
            self.start()
        else:
            self.main.order(b"S" + line + b"\n")

    def complain(self, about: str, text: str) -> None:
        self.complaints.add(about)
        self.say({"k": "trouble", "part": "probe", "text": text})

    def content(self, about: str) -> None:
        """What was complained about is well again."""
        if about in self.complaints:
            self.complaints.remove(about)
            if not self.complaints:
                self.say({"k": "trouble", "part": "probe", "text": None})

    def say(self, line: "dict[str, Any]") -> None:
        line.update(v=1, t=round(time.time(), 3))
        self.write(ndjson.encoded(line).encode() + b"\n")

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    # -- the workers --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.main = self.fork(None)

    def fork(self, only: "str | None") -> Child:
        spec, memory, stuck = self.spec_line, dict(self.memory), {} if only else self.told()

        def work(mark: "Mark") -> None:
            from collectors.probe import worker

            worker.Worker(spec, stuck, memory, only, mark).run()

        child = Child(work, only)
        self.poll.register(child.lines, select.POLLIN)
        return child

    def told(self) -> "dict[str, Any]":
        """What a worker has to know of the stuck operations: which, since when, and why."""
        return {name: [stuck.since, stuck.why] for name, stuck in self.stuck.items()}

    def relay(self, child: Child) -> None:
        """Hand lines on. Those that begin with `!` are notes to ourselves, for the next worker."""
        lines = child.received()
        if lines is None:
            self.ended(child)
            return
        if child is self.main:
            self.content("worker")
        if not lines:
            return
        if lines.startswith(b"!") or b"\n!" in lines:
            for line in lines.splitlines(True):
                if line.startswith(b"!done"):
                    child.done = True
                elif line.startswith(b"!"):
                    key, _, value = line[1:].decode().rstrip().partition(" ")
                    self.memory[key] = value
                else:
                    self.write(line)
        else:
            self.write(lines)

    def drop(self, child: Child) -> None:
        self.poll.unregister(child.lines)
        child.kill()
        child.close()
        self.gone.append(child)
        if child is self.trial:
            self.trial = None
        else:
            self.main = None

    def ended(self, child: Child) -> None:
        """A worker ended by itself: a trial that went well, or a crash."""
        since, name, _ = child.mark.read()
        self.drop(child)
        if child.done:
            self.recovered(child)
            return
        if child.only or since:
            self.give_up(child, name, "crashed")
        if child.only is None:
            self.crashes = 1 if time.monotonic() - child.begun > LAST_RETRY else self.crashes + 1
            self.restart_at = time.monotonic() + min(60, 2**self.crashes)
            text = "its worker ended by itself (%s)%s" % (child.ending(), " in " + name if since else "")
            self.complain("worker", text)

    def recovered(self, child: Child) -> None:
        """What hung answers again: back into the main worker, with the patience that it needed."""
        name = child.only or ""
        self.learnt[name] = max(self.standard, 2 * (time.monotonic() - child.begun))
        del self.stuck[name]
        self.tell()

    def give_up(self, child: Child, name: str, why: str) -> None:
        """Leave an operation out until its process is gone, and a trial of it succeeds."""
        now = time.monotonic()
        stuck = self.stuck.setdefault(child.only or name, Stuck(child.mark.read()[0] or now, why))
        stuck.retry_at = now + min(self.spec.get("retry", FIRST_RETRY) * 2**stuck.tries, LAST_RETRY)
        stuck.tries += 1
        stuck.why, stuck.left_in = why, child

    def tell(self) -> None:
        if self.main is not None:
            self.main.order(b"K" + ndjson.encoded(self.told()).encode() + b"\n")

    # -- time ---------------------------------------------------------------------------------------------------

    def patience(self, name: str) -> float:
        """How long an operation of the main worker may take."""
        shorter = self.stuck and name.startswith(FILES)
        return max(self.learnt.get(name, 0.0), min(self.standard, NEXT_PATIENCE) if shorter else self.standard)

    def trial_patience(self, name: str) -> float:
        """A trial has time: nothing waits for it."""
        stuck = self.stuck.get(self.trial.only or "") if self.trial else None
        return min(self.standard * 2.0 ** (stuck.tries if stuck else 0), LONGEST_PATIENCE)

    def watch(self) -> None:
        """Abandon what is overdue, start what is due."""
        for child in (self.main, self.trial):
            name = child.overdue(self.trial_patience if child.only else self.patience) if child else None
            if child is not None and name is not None:
                self.give_up(child, name, "hung")
                self.drop(child)
        self.gone = [child for child in self.gone if not child.is_gone()]
        now = time.monotonic()
        if self.main is None and self.spec and now >= self.restart_at:
            self.start()
        if self.trial is None:
            for name, stuck in self.stuck.items():
                if now >= stuck.retry_at and (stuck.left_in is None or stuck.left_in.is_gone()):
                    self.trial = self.fork(name)
                    break

    def wait(self) -> None:
        """Until there is something to read; a worker that is late is looked at five times a second."""
        late = self.main is None or self.main.mark.read()[0] or self.trial is not None
        timeout = 0.2 if late else self.tick + 0.5
        ready = self.poll.poll(1000 * timeout if self.spec else None)
        for fd, _ in ready:
            if fd == 0:
                self.hear()
            for child in (self.main, self.trial):
                if child is not None and child.lines == fd:
                    self.relay(child)
        if not ready or self.stuck or self.gone:
            self.watch()

    def kill(self) -> None:
        for child in (self.main, self.trial):
            if child is not None:
                child.kill()

    def end(self, why: str) -> None:
        """Take everything with us, and say why if anybody still listens."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.kill()
        listening = select.poll()
        listening.register(1, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in listening.poll(0)):
            self.say({"k": "bye", "why": why})


def main() -> None:
    """Runs until the client is gone."""
    os.nice(19)
    if hasattr(gc, "freeze"):
        gc.freeze()  # novm Python 3.7
    probe = Probe()

    def silent(*_: object) -> None:
        raise Ended("the client has been silent for %g s" % probe.spec.get("lease", LEASE))

    signal.signal(signal.SIGALRM, silent)
    signal.setitimer(signal.ITIMER_REAL, LEASE)
    try:
        try:
            while True:
                probe.wait()
        except Ended as ended:
            probe.end(str(ended))
    except BrokenPipeError:
        probe.kill()
    os._exit(0)
