"""All ranks do the same at the same step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.trainmon.job.hooks.conftest import Make, status
from trainmon import job
from trainmon.job import trainmon_hooks

NAN = float("nan")


def test_ranks_agree_every_k_steps_and_in_each_step_if_steps_are_long(
    make: Make, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainmon_hooks, "LOOK_EVERY", 0.5)
    votes: list[float] = []
    hooks = make(agree=lambda vote: votes.append(clock.now) or vote, every=10)  # type: ignore[func-returns-value]
    for step_s, expected in ((0.001, 4), (2.0, 30)):
        for _ in range(10):  # the pace is known after some votes
            clock.now += step_s
            hooks.step(0)
        votes.clear()
        for _ in range(30):
            clock.now += step_s
            hooks.step(0)
        assert expected - 1 <= len(votes) <= expected


def test_each_rank_tells_how_long_it_waits_for_its_data_and_for_the_others(make: Make, clock: SimpleNamespace) -> None:
    """A step of two seconds, of which it waits half a second for a batch, and 0.3 s in a vote."""

    def batches() -> Iterator[int]:
        for step in range(100):
            clock.now += 0.5
            yield step

    def agree(votes: list[float]) -> list[float]:
        clock.now += 0.3
        return votes

    hooks = make(agree=agree, every=2, rank=3)
    for step in hooks.batches(batches()):
        clock.now += 1.2
        hooks.step(step)
    numbers = [int(one) for one in os.pread(hooks._times, 100, 0).split()]
    assert 90 < numbers[0] < 100
    assert numbers[1:] == pytest.approx([2_000_000, 500_000, 300_000], rel=0.05)


def test_what_the_own_gpu_has_yet_to_do_is_no_wait_for_others(
    make: Make, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that reads its loss in each step has waited before the vote: the others do not wait for it."""

    def ends(seconds: float = 0.0) -> list[float]:
        """The GPU does all that it has been given."""
        clock.now, left[0] = clock.now + left[0] + seconds, 0.0
        return [0.0] * 7

    left, tensor = [0.0], SimpleNamespace(tolist=lambda: ends(0.01))
    group = {"is_available": True, "is_initialized": True, "get_world_size": 8, "get_rank": 3, "get_backend": "nccl"}
    dist = SimpleNamespace(**{name: lambda value=value: value for name, value in group.items()})
    dist.all_reduce, dist.ReduceOp = (lambda tensor, op: None), SimpleNamespace(MAX=None)
    stream = SimpleNamespace(synchronize=ends)
    cuda = SimpleNamespace(current_device=lambda: 0, current_stream=lambda: stream)
    torch = SimpleNamespace(distributed=dist, cuda=cuda, float32=None, tensor=lambda *_, **__: tensor)
    monkeypatch.setitem(sys.modules, "torch", torch)
    hooks = make(every=1)
    for step in range(40):
        clock.now, left[0] = clock.now + 0.5, 0.4
        hooks.step(step)
    assert int(os.pread(hooks._times, 100, 0).split()[3]) == pytest.approx(10_000, rel=0.05)


def test_only_the_hooks_that_are_open_tell_of_steps(make: Make, clock: SimpleNamespace) -> None:
    for number in range(3):
        hooks = make()
        for _ in range(2):
            clock.now += 20.0
            hooks.step(number)
        told = [one for one in Path("/proc/self/fd").iterdir() if "trainmon-steps" in str(os.path.realpath(one))]
        assert [one.read_text().split()[0] for one in told] == [str(number)]
        hooks.done()


def test_a_vote_that_fails_decides_nothing_and_forgets_nothing(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    broken = [True]

    def agree(votes: list[float]) -> list[float]:
        if broken:
            raise RuntimeError("connection reset by peer")
        return votes

    hooks = make(agree=agree)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert [hooks.step(1), hooks.step(2)] == ["", ""]
    assert (
        capfd.readouterr().err == "trainmon: warning: the ranks cannot agree: RuntimeError: connection reset by peer\n"
    )
    broken.clear()
    assert hooks.step(3) == "save"


def test_the_caller_may_add_the_vote_to_a_reduction_of_its_own(make: Make, tmp_path: Path) -> None:
    first, second = make(rank=0), make(rank=1)
    second._told["SIGTERM"] += 1
    for _ in range(2):
        votes = [max(pair) for pair in zip(first.votes(1.0), second.votes(NAN), strict=True)]
        assert [one.step(5, 1.0, agreed=votes) for one in (first, second)] == ["stop", "stop"]
        assert first.is_bad == second.is_bad == True  # noqa: E712
    assert first.why == "stop: SIGTERM on rank 1"
    assert status(tmp_path)["asked"]["by"] == "SIGTERM on rank 1"
    assert first.step(6, 1.0, agreed=[0.0]) == "stop"


RANKS = """
import json, os, signal, socket, sys, time
sys.path.insert(0, sys.argv[1])
import trainmon_hooks
ours, theirs = socket.socketpair()
rank = 0 if os.fork() else 1
mine = (ours, theirs)[rank]
answers = mine.makefile("r")
signal.alarm(100)  # nobody waits longer for the other

def agree(votes):
    mine.sendall((json.dumps(votes) + "\\n").encode())
    return [max(pair) for pair in zip(votes, json.loads(answers.readline()))]

kill = "%s/kill-%d" % (sys.argv[1], rank)
settings = dict(nan="stop", nan_after=2) if sys.argv[2] == "nan" else dict(nan="skip")
hooks = trainmon_hooks.Hooks(kill=kill, save=kill + "-save", rank=rank, agree=agree, **settings)
seen = []
for step in range(200):
    time.sleep(0.002)
    if step == 20 and rank == 1:
        if sys.argv[2] == "switch":
            open(kill, "w").close()  # of no file that rank 0 looks at
        elif sys.argv[2] in ("USR1", "TERM"):
            os.kill(os.getpid(), getattr(signal, "SIG" + sys.argv[2]))
    loss = float("nan") if sys.argv[2] in ("nan", "skip") and rank == 1 and step in (20, 21) else 1.0
    if hooks.skip(loss):
        seen.append([step, "skip"])
    ask = hooks.step(step, loss)
    if ask:
        seen.append([step, ask])
    if ask == "stop":
        break
open("%s/seen-%d" % (sys.argv[1], rank), "w").write(json.dumps(seen))
if rank == 0:
    os.wait()
"""


EXPECTED = {"USR1": ["save"], "TERM": ["stop"], "nan": ["stop"], "skip": ["skip", "skip"], "switch": []}


@pytest.mark.parametrize("what", EXPECTED)
def test_what_one_rank_is_told_both_do_at_the_same_step(what: str, tmp_path: Path) -> None:
    (tmp_path / "trainmon_hooks.py").write_text(job.hooks_module())
    done = subprocess.run(
        [sys.executable, "-c", RANKS, str(tmp_path), what], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"seen-{rank}").read_text()) for rank in (0, 1))
    assert first == second
    assert [ask for _, ask in first] == EXPECTED[what]
    assert not (tmp_path / "kill-1.status").exists()
