"""trainmon_hooks: what a training loop needs so that people and Slurm can ask it to save or to stop.

One file, Python 3.8 or later, nothing but the standard library: copy it beside the training script.

    hooks = Hooks.from_env()                    # TRAINMON_KILL, TRAINMON_SAVE, TRAINMON_STATUS
    if hooks.stop_at_start(): sys.exit(0)       # the kill switch is armed
    for step, batch in enumerate(loader, start):
        loss = train_step(batch)
        ask = hooks.step(step, loss)            # "", "save" or "stop": the same on every rank at the same step
        if ask:
            save(step); hooks.saved(step)
        if ask == "stop":
            break
    hooks.done(step)

Every rank makes a Hooks and calls `step` equally often; only rank 0 reads and writes files, on a thread of its own: no
step waits for a file. That thread holds no lock during a system call, since a forked worker of a DataLoader would keep
it. The maximum of the *votes* of all ranks, which are lists of numbers, decides: a signal to one rank is obeyed by all
at the same step.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import math
import os
import re
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, List, Mapping

PATIENCE = 5.0  # seconds: so long, at most, the start waits for the kill switch, and the end for the last status
LOOK_EVERY = 0.5  # seconds: at most so long between two votes, and half of it between two looks at the switches
STATUS_EVERY = 1.0  # seconds between two writes of the status file; what is asked, saved or ended is written at once
SIGNALS = {"SIGTERM": "stop", "SIGUSR1": "save"}  # `stop` means: save, then stop
STACKS = 11  # above SIGRTMIN: the signal on which the stack of the main thread is written
TIMES_EVERY = 15.0  # seconds between two writes of what the steps of a rank take
KILL, SAVE, LIMIT, BAD, SECONDS, FIRST_SIGNAL = range(6)  # of a vote; last, for each signal: 1 + its rank, or 0
Votes = List[float]


class Hooks:
    """What is asked of a training loop, and what it reports.

    kill, save: paths of the switches. status: path of the status file, else the kill switch (or the save switch) with
    `.status` behind it. deadline: when the job ends, in seconds since 1970, else $SLURM_JOB_END_TIME; `grace` seconds
    before that, the loop is asked to save and stop. nan: what a loss that is not finite leads to: `warn`, `skip` (see
    there), `stop` after `nan_after` of them in a row, or `ignore`. agree: gets a vote and returns the maximum of all
    ranks, number by number; else torch.distributed does that once it is initialised. every: vote after at most so many
    steps. print_every: print a step line after so many steps. total: how many steps there are, for that line.
    why: what was asked for last, and by whom. is_bad: whether a loss was not finite at the last vote.
    """

    _owner: Hooks | None = None  # the one that has the signals of this process

    def __init__(
        self, kill: str | None = None, save: str | None = None, status: str | None = None, *,
        signals: Mapping[str, str] = SIGNALS, deadline: float | str | None = None, grace: float = 120.0,
        nan: str = "warn", nan_after: int = 1, agree: Callable[[Votes], Votes] | None = None, every: int = 10,
        rank: int | None = None, print_every: int = 0, total: int | None = None,
    ) -> None:  # fmt: skip
        known = os.environ.get
        self.kill, self.save, beside = (path and os.path.abspath(path) for path in (kill, save, kill or save))
        self.status = os.path.abspath(status) if status else beside and beside + ".status"
        self.deadline = _number(known("SLURM_JOB_END_TIME") if deadline is None else deadline)
        self.grace = min(grace, max(0.0, (self.deadline or math.inf) - time.time()) / 2)  # for short jobs
        self.nan, self.nan_after = nan if nan in ("warn", "skip", "stop", "ignore") else "warn", nan_after
        self.agree, self.every, self.print_every, self.total = agree, max(1, every), print_every, total
        self.rank = int(_number(known("RANK") or known("SLURM_PROCID")) or 0) if rank is None else rank
        self._signals = {name: signals[name] for name in sorted(signals) if signals[name] in ("save", "stop")}
        self._told = dict.fromkeys(self._signals, 0)  # how often each came; only the handler changes it
        self._voted = self._answered = dict(self._told)  # how often at the last vote, and at the last decision
        self._previous, self._warned = {}, set()  # type: dict[int, Any], set[str]
        self._kill_is_armed = self._is_stopping = self._is_closed = self._is_collective = False
        self._save_found = self._save_voted = self._save_obeyed = None  # type: tuple[int, int] | None
        self._due: dict[str, Any] = {}  # by path: the text to write, or which file to remove
        self._thread = threading.Thread()  # the one that reaches for files, once it is started
        self._news = threading.Event()  # something is due
        self.why, self.is_bad, self._bad_in_row, self._most_bad, self._calls = "", False, 0, 0, 0
        self._countdown, self._voted_at, self._look_at, self._write_at = 1, time.monotonic(), 0.0, 0.0
        self._steps, self._waits, self._times_at, self._times = 0, [0.0, 0.0, 0.0], time.monotonic(), -1
        self._report: dict[str, Any] = {
            "v": 1, "pid": os.getpid(), "host": os.uname().nodename, "job": known("SLURM_JOB_ID"), "at": 0.0,
            "started_at": time.time(), "phase": "starting", "step": None, "loss": None, "deadline": self.deadline,
            "grace_s": self.grace, "kill": self.kill, "save": self.save, "signals": {}, "asked": None,
            "last_save": None, "ended": None, "is_task": known("SLURM_TASK_PID") == str(os.getpid()),
        }  # fmt: skip
        wrong = [("nan", nan)] * (nan != self.nan) + [one for one in signals.items() if one[0] not in self._signals]
        for one in wrong + [("deadline", str(deadline))] * (bool(deadline) and not self.deadline):
            self._warn("%s=%s is not understood and is ignored" % one)
        self._install()
        atexit.register(self._finish)
        os.register_at_fork(after_in_child=self._in_child)
        self._write(is_news=True)

    @classmethod
    def from_env(cls, **settings: Any) -> Hooks:
        """One with the paths in TRAINMON_KILL, TRAINMON_SAVE and TRAINMON_STATUS, and perhaps TRAINMON_DEADLINE."""
        for name in ("kill", "save", "status", "deadline"):
            settings.setdefault(name, os.environ.get("TRAINMON_" + name.upper()) or None)
        return cls(**settings)

    def stop_at_start(self) -> bool:
        """Whether the kill switch is armed. Before torch.distributed is initialised, each rank looks for itself."""
        self._await(self._started(self._look))
        agreed = self._agreed([float(self._kill_is_armed)])
        if agreed is not None and agreed[0]:
            self._is_stopping = True
            self._ask("stop", "the kill switch", None)
            self.done()
        return self._is_stopping

    def step(self, step: int, loss: Any = None, agreed: Votes | None = None, **numbers: float) -> str:
        """What is asked for: "", "save", or "stop" (save, then stop). Numbers are for the step line. See `votes`."""
        self._calls += 1
        self._tell_times(step)
        if agreed is None:
            self._count_bad(loss, "stop")
        if self.print_every and step % self.print_every == 0 and self.rank == 0:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
                print(self.line(step, loss, **numbers), flush=True)
        return self._poll("training", step, loss) if agreed is None else self._answer(agreed, "training", step, loss)

    def poll(self, phase: str = "evaluation") -> str:
        """The same where no step is made, as in evaluation and warm-up. Every rank calls it equally often."""
        self._calls += 1
        return self._poll(phase, self._report["step"], self._report["loss"])

    def votes(self, loss: Any = None) -> Votes:
        """The vote of this rank, for an all_reduce (MAX) of the caller in every step; its result is `agreed`."""
        self._count_bad(loss, "stop")
        return self._vote(loss)

    def skip(self, loss: Any) -> bool:
        """Whether all ranks are to skip this step. With `nan="skip"`, call it before every step of the optimizer."""
        agreed = self._agreed([float(_is_bad(loss))]) if self.nan == "skip" else None
        self.is_bad = agreed is not None and agreed[0] > 0.0
        if self.is_bad:
            self._warn("a loss is not finite: its step is skipped")
        return self.is_bad

    def batches(self, loader: Any) -> Any:
        """The batches of a loader. If one rank waits longer for them than all others, trainmon-tui names it."""
        began = time.monotonic()
        for batch in loader:
            self._waits[0] += time.monotonic() - began
            yield batch
            began = time.monotonic()

    def saved(self, step: int) -> None:
        """A checkpoint of this step is complete. Only then is the save switch removed: a save that raises keeps it."""
        self._voted_at, self._calls = time.monotonic(), 0  # the save is no part of the time of a step
        phase = "stopping" if self._is_stopping else "training"
        self._report.update(phase=phase, last_save={"step": step, "at": time.time()})
        if self._save_obeyed is not None and not self._is_closed:
            self._due[str(self.save)] = self._save_obeyed
        self._write(is_news=True)

    def done(self, step: int | None = None, why: str = "") -> None:
        """The loop has ended. Records why, and gives the signals back."""
        if not self._is_closed:
            self._end(step, why or (self.why if self._is_stopping else "the training loop has ended"))
            self.close()

    def close(self) -> None:
        """Give the signals and the hook for exceptions back. From then on, nothing is asked."""
        for number, previous in self._previous.items():
            try:
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, previous)
            except (ValueError, TypeError) as error:  # another thread, or a handler that is not Python's
                self._warn("a signal keeps its handler: %s" % error)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_excepthook
        times, self._times = self._times, -1
        if times >= 0:
            os.close(times)
        self._finish()
        atexit.unregister(self._finish)
        Hooks._owner = None if Hooks._owner is self else Hooks._owner

    def line(self, step: int, loss: Any = None, **numbers: float) -> str:
        """A line that trainmon-tui reads: `step: 120/1000 | loss: 2.3456 | lr: 0.0003`."""
        shown = {name: _number(value) for name, value in dict(loss=loss, **numbers).items()}
        cells = ["%s: %.6g" % (name, value) for name, value in shown.items() if value is not None]
        return " | ".join(["step: %d%s" % (step, "" if self.total is None else "/%d" % self.total), *cells])

    def _poll(self, phase: str, step: int | None, loss: Any) -> str:
        agreed = self._agreed(self._vote(loss)) if not self._is_closed and self._is_due() else None
        return self._answer(agreed, phase, step, loss)

    def _is_due(self) -> bool:
        """Whether to vote now. Among several ranks, the last vote has decided that, alike on all of them."""
        if not self._has_others():
            return self._told != self._answered or time.monotonic() >= self._look_at or self._most_bad >= self.nan_after
        self._countdown -= 1
        return self._countdown <= 0

    def _has_others(self) -> bool:
        """Whether there are other ranks to agree with. This does not import torch."""
        dist = getattr(sys.modules.get("torch"), "distributed", None)
        has_torch = bool(dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
        if dist and has_torch and not self._is_collective:
            self._is_collective, self._countdown, self.rank = True, 1, dist.get_rank()
        return has_torch or self.agree is not None

    def _tell_times(self, step: int) -> None:
        """Write into memory the step, and in µs how long a step takes, how long this rank waits for its data in it, and
        in a vote for the last rank. All ranks have the same steps: only what they wait for tells them apart."""
        now = time.monotonic()
        self._steps += 1
        if now - self._times_at >= TIMES_EVERY and not self._is_closed:
            data, waited, votes = self._waits
            numbers = ((now - self._times_at) / self._steps, data / self._steps, waited / max(1.0, votes))
            with contextlib.suppress(OSError, TypeError, ValueError):
                text = b"%-19d %-19d %-19d %-19d\n" % (int(step), *(int(1e6 * one) for one in numbers))
                os.pwrite(self._times, text, 0)
            self._steps, self._waits, self._times_at = 0, [0.0, 0.0, 0.0], now

    def _vote(self, loss: Any) -> Votes:
        now = time.monotonic()
        self._count_bad(loss, "warn")
        self._look_at = now + LOOK_EVERY / 2
        self._voted, self._save_voted = dict(self._told), self._save_found
        armed = (
            self.rank == 0 and self._kill_is_armed,
            self.rank == 0 and self._save_voted not in (None, self._save_obeyed),
        )
        told = [(1.0 + self.rank) * (self._voted[name] != self._answered[name]) for name in self._signals]
        is_late = self.deadline is not None and time.time() >= self.deadline - self.grace
        seconds = (now - self._voted_at) / max(1, self._calls)
        return [*map(float, (*armed, is_late, self._most_bad)), seconds, *told]

    def _count_bad(self, loss: Any, nan: str) -> None:
        if self.nan == nan:  # `stop` looks at each loss; `warn` costs a GPU no wait in each step
            self._bad_in_row = self._bad_in_row + 1 if _is_bad(loss) else 0
            self._most_bad = max(self._most_bad, self._bad_in_row)

    def _agreed(self, votes: Votes) -> Votes | None:
        """The maximum of all ranks; None if it cannot be had, since one rank alone must not decide."""
        if self._is_closed:
            return None
        began = time.monotonic()
        try:
            if not self._has_others():
                return votes
            if self.agree is not None:
                return [float(one) for one in self.agree(list(votes))]
            torch: Any = sys.modules["torch"]
            device = torch.cuda.current_device() if torch.distributed.get_backend() == "nccl" else "cpu"
            if device != "cpu":
                torch.cuda.current_stream().synchronize()  # what its own GPU has yet to do is no wait for others
                began = time.monotonic()
            tensor = torch.tensor(votes, dtype=torch.float32, device=device)
            torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MAX)
            return [float(one) for one in tensor.tolist()]
        except Exception as error:  # whatever the caller's function raises
            self._warn("the ranks cannot agree: %s: %s" % (type(error).__name__, error))
            return None
        finally:
            self._waits[1:] = self._waits[1] + time.monotonic() - began, self._waits[2] + 1.0

    def _answer(self, agreed: Votes | None, phase: str, step: int | None, loss: Any) -> str:
        if agreed is None or self._is_closed or len(agreed) != FIRST_SIGNAL + len(self._signals):
            return "stop" if self._is_stopping else ""
        self._answered, self._voted_at, self._calls = self._voted, time.monotonic(), 0
        self._countdown = max(1, min(self.every, int(LOOK_EVERY / max(agreed[SECONDS], 1e-6))))
        self.is_bad, self._most_bad = agreed[BAD] > 0.0, 0
        if self.is_bad:
            self._warn("a loss is not finite")
        phase = "stopping" if self._is_stopping else phase
        self._report.update(phase=phase, step=step, loss=None if _is_bad(loss) else _number(loss))
        if agreed[SAVE]:
            self._save_obeyed = self._save_voted
        is_bad = self.nan == "stop" and agreed[BAD] >= self.nan_after
        wishes = [("stop", "the kill switch")] * bool(agreed[KILL]) + [("stop", "the time limit")] * bool(agreed[LIMIT])
        wishes += [("stop", "a loss that is not finite")] * is_bad + [("save", "the save switch")] * bool(agreed[SAVE])
        told = zip(self._signals.items(), agreed[FIRST_SIGNAL:])  # noqa: B905  Python 3.10 has strict=
        wishes += [(ask, "%s on rank %d" % (name, rank - 1)) for (name, ask), rank in told if rank]
        if wishes and not self._is_stopping:
            ask, by = max(wishes, key=lambda wish: wish[0] == "stop")
            self._is_stopping = ask == "stop"
            self._ask(ask, by, step)
            return ask
        self._write()
        return "stop" if self._is_stopping else ""

    def _ask(self, ask: str, by: str, step: int | None) -> None:
        self.why = "%s: %s" % (ask, by)
        self._report.update(phase="saving", asked={"what": ask, "by": by, "at": time.time(), "step": step})
        self._write(is_news=True)
        self._say("%s, asked for by %s%s" % (ask, by, "" if step is None else ", at step %d" % step))

    def _found(self, path: str | None) -> tuple[int, int] | None:
        """Which file is there, if any."""
        try:
            found = os.stat(path) if path else None
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._warn("a switch cannot be read: %s" % error)
            return None
        return found and (found.st_ino, found.st_mtime_ns)

    def _look(self) -> None:
        self._kill_is_armed, self._save_found = self._found(self.kill) is not None, self._found(self.save)

    def _catch_up(self, due: dict[str, Any]) -> None:
        """Write or remove what is due."""
        while due:
            path, what = due.popitem()
            try:
                if isinstance(what, str):
                    self._put(path, what)
                elif self._found(path) == what:  # it is still the one that was obeyed
                    os.unlink(path)
            except OSError as error:
                failed = "a file cannot be written" if isinstance(what, str) else "the save switch cannot be removed"
                self._warn("%s: %s" % (failed, error))

    def _serve(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_closed
            self._catch_up(self._due)
            if not is_over and self.rank == 0:
                self._look()
            is_over or self._news.wait(LOOK_EVERY / 2)
            self._news.clear()

    def _started(self, work: Callable[[], Any]) -> threading.Thread:
        thread = threading.Thread(target=work, name="trainmon_hooks", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # as many as this user may have
            self._warn("no file is read or written: %s" % error)
        return thread

    def _await(self, thread: threading.Thread) -> None:
        if thread.is_alive():
            thread.join(PATIENCE)
        if thread.is_alive():
            self._warn("a file system does not answer: no switch is seen and no status is written")

    def _finish(self) -> None:
        """Have the thread write what is due, and end it. A forked process has none."""
        self._is_closed = True
        if self._thread.is_alive():
            self._news.set()
            self._await(self._thread)

    def _install(self) -> None:
        self._previous_excepthook = sys.excepthook
        if Hooks._owner is not None:
            self._warn("there are two Hooks: only the first receives signals")
            return
        Hooks._owner, sys.excepthook = self, self._on_exception
        self._announce()
        for name, ask in self._signals.items():
            try:
                number = int(getattr(signal, name))
                self._previous[number] = signal.signal(number, self._on_signal)
                self._report["signals"][name] = ask
            except (ValueError, OSError, AttributeError) as error:  # not the main thread; no such signal
                self._warn("signals cannot be received: %s: %s" % (name, error))

    def _announce(self) -> None:
        """Let trainmon-tui ask where the main thread stands: by a signal that nothing else uses, into memory, since a
        handler that waits for a file server would hold the trainer up. That the file is open shows that it listens."""
        with contextlib.suppress(OSError, AttributeError):
            self._times = os.memfd_create("trainmon-steps")
        with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
            number = signal.SIGRTMIN + STACKS
            with open("/proc/self/status") as status:  # signal.getsignal does not know the handlers of C
                masks = re.findall(r"^Sig(?:Blk|Ign|Cgt):\s*(\w+)$", status.read(), re.M)
            if len(masks) == 3 and not any(int(mask, 16) >> number - 1 & 1 for mask in masks):
                path = "/dev/shm/trainmon-stacks.%d.%d" % (os.getpid(), time.time_ns())
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
                os.unlink(path)
                os.write(file, b"trainmon-stacks %d %d\n" % (number, os.getpid()))
                faulthandler.register(number, file, all_threads=False)

    def _on_signal(self, number: int, frame: Any) -> None:
        self._told[signal.Signals(number).name] += 1
        previous = self._previous[number]
        if callable(previous) and previous is not signal.default_int_handler:
            previous(number, frame)

    def _on_exception(self, kind: Any, error: BaseException, trace: Any) -> None:
        """Write the file from which torchrun has the root cause, as its decorator `record` does."""
        self._end(self._report["step"], "an exception: %s" % kind.__name__)
        path, lines = os.environ.get("TORCHELASTIC_ERROR_FILE"), traceback.format_exception(kind, error, trace)
        extra = {"py_callstack": "".join(lines), "timestamp": str(int(time.time()))}
        message = {"message": {"message": "%s: %s" % (kind.__name__, error), "extraInfo": extra}}
        if path:
            due = {path: json.dumps(message)}
            self._await(self._started(lambda: self._catch_up({} if os.path.exists(path) else due)))
        self._previous_excepthook(kind, error, trace)

    def _in_child(self) -> None:
        """A forked process has the handlers from before. What asks for a save, Slurm sends to it, too: ignored."""
        if not self._is_closed:
            self.close()
            for number, previous in self._previous.items():
                if previous is signal.SIG_DFL and self._signals[signal.Signals(number).name] == "save":
                    signal.signal(number, signal.SIG_IGN)

    def _end(self, step: int | None, why: str) -> None:
        step = self._report["step"] if step is None else step
        self._report.update(phase="ended", step=step, ended={"step": step, "at": time.time(), "why": why})
        self._write(is_news=True)
        self._say("ended%s: %s" % ("" if step is None else " at step %d" % step, why))

    def _write(self, is_news: bool = False) -> None:
        """Have the status file written. Only the loop asks for that: a thread of itself would go on while it hangs."""
        now = time.monotonic()
        if self.status and self.rank == 0 and not self._is_closed and (is_news or now >= self._write_at):
            self._write_at = now + STATUS_EVERY
            try:  # a step may be a number of numpy or torch
                self._due[self.status] = json.dumps(dict(self._report, at=time.time()), default=int)
            except (TypeError, ValueError) as error:
                self._warn("a file cannot be written: %s" % error)
            if not self._thread.is_alive():
                self._thread = self._started(self._serve)
            self._news.set()

    def _put(self, path: str, text: str) -> None:
        place = "%s.%s.%d.tmp" % (path, self._report["host"], os.getpid())
        with contextlib.suppress(FileNotFoundError):  # somebody may have linked that name to a file of ours
            os.unlink(place)
        with open(place, "xb", buffering=0) as file:  # a buffer has a lock
            data = text.encode()
            while data:
                data = data[file.write(data) :]
        os.replace(place, path)

    def _warn(self, text: str) -> None:
        """Say it, once for each kind."""
        kind = text.partition(":")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            self._say("warning: %s" % text, by_all=True)

    def _say(self, text: str, by_all: bool = False) -> None:
        if self.rank == 0 or by_all:
            with contextlib.suppress(OSError):  # there is nobody to hear it
                os.write(2, ("trainmon: %s\n" % text).encode("utf-8", "replace"))


def _number(value: Any) -> float | None:
    with contextlib.suppress(Exception):  # None, text, or a tensor of several numbers
        return float(value.detach() if hasattr(value, "detach") else value)  # of a tensor with a gradient, torch warns
    return None


def _is_bad(loss: Any) -> bool:
    return not math.isfinite(_number(loss) or 0.0)
