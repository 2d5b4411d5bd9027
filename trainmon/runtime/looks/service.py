"""Makes looks at the ranks of a run when a person or the monitor asks, and submits what they show."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Lock, Thread

from trainmon.analysis.runs import STILL, last_attempts
from trainmon.lib import Clock, Instant, Seconds, TrainmonError
from trainmon.model import SILENT, LookReply, LookSource, RankLook, RunLooked, State
from trainmon.runtime.looks import ras
from trainmon.runtime.looks.flight_recorder import FlightRecorder
from trainmon.runtime.looks.nodes import Nodes, Request, look_at_processes

log = logging.getLogger(__name__)


Source = Callable[[Request], RankLook]
"""Makes one look on a thread of its own. It raises TrainmonError when it cannot, with a sentence for the run's page."""

SOURCES: Mapping[LookSource, Source] = {
    "proc": look_at_processes,
    "nccl-ras": ras.look,
    "flight-recorder": FlightRecorder().look,
}
"""What only reads, the fastest first: an alert fires a minute after the stall begins, and has what is known by then.
Stacks are read only when a person wants them."""


class Looks:
    """The looks of one program. At most one request of a kind at a time for each run."""

    def __init__(
        self,
        state: Callable[[], State],
        nodes: Nodes,
        submit: Callable[[RunLooked], None],
        clock: Clock,
        sources: Mapping[LookSource, Source] = SOURCES,
    ) -> None:
        self._state, self._nodes, self._submit, self._clock = state, nodes, submit, clock
        self._sources = sources
        self._busy: set[tuple[str, ...]] = set()
        """Runs, with the sources where not all were asked."""
        self._lock = Lock()

    def ask(self, run: str, reply: Callable[[LookReply], object], sources: Sequence[LookSource] = ()) -> None:
        """Look at the ranks of a run, by these sources or by all, one after the other; each look is submitted. Returns
        at once; replies come on another thread."""
        with self._lock:
            is_busy = (run, *sources) in self._busy
            self._busy.add((run, *sources))
        if is_busy:
            reply(LookReply(f"the ranks of {run} are being looked at: the result comes soon", is_done=True))
            return
        Thread(target=self._work, args=(run, reply, sources), name="look", daemon=True).start()

    def _work(self, name: str, reply: Callable[[LookReply], object], sources: Sequence[LookSource]) -> None:
        text = ""
        try:
            for source in sources or self._sources:
                state = self._state()
                if (run := state.runs.get(name)) is None:
                    text = f"{name} is not watched"
                    break
                say = lambda said: reply(LookReply(said))  # noqa: E731
                request = Request(state, run, self._nodes, self._clock, say, self._state)
                look, attempt = self._look(source, request), last_attempts(state.attempts.values()).get(name)
                self._submit(RunLooked(name, look, None if attempt is None else attempt.attempt_id))
                reply(LookReply(look.summary, look))
        finally:
            with self._lock:
                self._busy.discard((name, *sources))
            reply(LookReply(text, is_done=True))

    def _look(self, source: LookSource, request: Request) -> RankLook:
        try:
            return self._sources[source](request)
        except TrainmonError as error:
            why, advice = error.message, error.hint
        except Exception:  # one source that fails does not keep the others from looking
            log.exception("the look by %s failed", source)
            why, advice = f"the look by {source} failed; the log of trainmon-tui has the error", ""
        return RankLook(source=source, at=self._clock.now(), summary=why, advice=advice, is_answer=False)


# ---- looks at the ranks of each run that makes no steps although it should, without a person: twice for each stall ---

AT_MOST = 2
AGAIN: Seconds = 120.0
"""How long after the first look the second one is made: it shows that nothing has moved, and for how long."""


class AutomaticLooks:
    """Watches the State. Of several programs, the one that sends notifications looks; its alerts have the result."""

    def __init__(self, ask: Callable[[str, Callable[[LookReply], object]], None], clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._made: dict[str, tuple[object, int, Instant]] = {}
        """By run: its last stall, how often it was looked at, and when it is next."""

    def observe(self, state: State) -> None:
        """Ask for looks at the runs that are due. On the engine's thread; never waits."""
        now = self._clock.now()
        self._made = {name: made for name, made in self._made.items() if name in state.runs}
        for name, run in state.runs.items() if state.leadership.holder in ("us", "nobody") else ():
            job = state.jobs.get(run.job or "")
            is_suspended = job is not None and job.state in STILL  # none of its ranks can answer
            if run.verdict not in SILENT or is_suspended:
                continue
            stall = (run.progress.at, run.job)
            known, count, due_at = self._made.get(name, (None, 0, 0.0))
            count = count if known == stall else 0
            if count < AT_MOST and (known != stall or now >= due_at):
                self._made[name] = stall, count + 1, now + AGAIN
                self._ask(name, lambda reply: None)
