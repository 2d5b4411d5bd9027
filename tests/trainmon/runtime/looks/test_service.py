"""Looks that a person or the monitor asks for: one request at a time for each run, and a sentence for what fails."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Event

from trainmon.lib import CommandFailed, SystemClock
from trainmon.model import LookReply, RankLook, Run, RunLooked, RunSpec, State
from trainmon.runtime.looks import Looks, Nodes, Request

STATE = State(runs={"llm": Run(spec=RunSpec(name="llm", cluster="prod"))})
SEEN = RankLook(source="nccl-ras", at=1.0, summary="rank 3 has left", ranks=(3,))


def test_each_source_is_asked_and_one_that_fails_says_why() -> None:
    replies, submitted, go_on = SimpleQueue[LookReply](), list[RunLooked](), Event()

    def ras(request: Request) -> RankLook:
        request.say("the first answer has come")
        assert go_on.wait(10)
        return SEEN

    def refused(request: Request) -> RankLook:
        raise CommandFailed("n1 is being looked at", hint="wait")

    def broken(request: Request) -> RankLook:
        raise ZeroDivisionError

    nodes = Nodes(lambda host: 1 / 0)  # type: ignore[arg-type,return-value]
    looks = Looks(
        lambda: STATE, nodes, submitted.append, SystemClock(), {"nccl-ras": ras, "proc": refused, "stacks": broken}
    )
    looks.ask("llm", replies.put)
    looks.ask("llm", replies.put)
    got = [replies.get(timeout=60) for _ in range(2)]
    go_on.set()
    got += [replies.get(timeout=60) for _ in range(4)]
    assert sorted(one.text for one in got[:2]) == [
        "the first answer has come", "the ranks of llm are being looked at: the result comes soon",
    ]  # fmt: skip
    assert [one.text for one in got[2:5]] == [
        "rank 3 has left", "n1 is being looked at", "the look by stacks failed; the log of trainmon-tui has the error",
    ]  # fmt: skip
    assert [one.is_done for one in got[2:]] == [False, False, False, True]
    assert [(one.run, one.look.is_answer, one.look.advice) for one in submitted] == [
        ("llm", True, ""), ("llm", False, "wait"), ("llm", False, ""),
    ]  # fmt: skip
    go_on.clear()
    looks.ask("llm", replies.put)
    looks.ask("llm", replies.put, ("proc",))  # who reads dumps alone takes no look away
    got = [replies.get(timeout=60) for _ in range(3)]
    assert sorted(one.text for one in got) == ["", "n1 is being looked at", "the first answer has come"]
    go_on.set()
    assert [replies.get(timeout=60).is_done for _ in range(4)] == [False, False, False, True]
    looks.ask("gone", replies.put)
    assert replies.get(timeout=60) == LookReply("gone is not watched", is_done=True)
