"""Who differs from all others, by what each rank does: named only with proof, and never rank 0 for work of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from trainmon.analysis.attempts.looks.activity import Sample, activities, judged
from trainmon.model import RankLook, RankMap

SECONDS = 5

Samples = tuple[Sample | None, ...]


def seen(
    state: str = "S",
    wchan: str = "futex_do_wait",
    *,
    ran: float = 0.0,
    switches: float = 0.0,
    call: str = "202",
    kernel: str = "6.1.0-28-amd64 x86_64",
) -> Samples:
    """Six samples; what is given as a number grows by it in each second."""
    return tuple(
        Sample(
            at=100.0 + at,
            state=state[at % len(state)],
            ran=9.0 + at * ran,
            process=50.0 + at * ran,
            switches=int(at * switches),
            cpus="0-15",
            wchan=wchan,
            call=call,
            kernel=kernel,
        )
        for at in range(SECONDS + 1)
    )


WAITING, SPINNING, SLEEPING = seen(), seen("R", "", ran=0.99, call=""), seen(wchan="hrtimer_nanosleep")
STEPPING = seen("RS", ran=0.4, switches=12)


def look(read: Iterable[Sequence[Sample | None]] | Mapping[int, Sequence[Sample | None]], **other: str) -> RankLook:
    by_rank = read if isinstance(read, Mapping) else dict(enumerate(read))
    known = RankMap(
        launcher="torchrun",
        ranks=max(8, len(by_rank)),
        nodes={"gpu-001": {rank: (rank,) for rank in range(len(by_rank))}},
    )
    pids = {rank: 4700 + rank for rank in by_rank}
    return judged("proc", known, activities(by_rank), 5_000.0, pids=pids, **other)


def with_odd(usual: Samples, odd: Samples, *ranks: int, of: int = 8) -> list[Samples]:
    return [odd if rank in ranks else usual for rank in range(of)]


@pytest.mark.parametrize(
    ("usual", "odd", "words"),
    [
        (SPINNING, SLEEPING, "7 of 8 ranks burn a core; rank 3 (gpu-001 GPU 3) waits in "
                             "`hrtimer_nanosleep`: differs, 8 of 8 read"),
        (WAITING, SPINNING, "7 of 8 ranks wait in `futex_do_wait`; rank 3 (gpu-001 GPU 3) burns a core: "
                            "differs, 8 of 8 read"),
        (WAITING, seen("R", "", ran=0.2), "7 of 8 ranks wait in `futex_do_wait`; rank 3 (gpu-001 GPU 3) "
                                                      "burns a core: differs, 8 of 8 read"),
        (WAITING, STEPPING, "7 of 8 ranks wait in `futex_do_wait`; rank 3 (gpu-001 GPU 3) works: "
                            "differs, 8 of 8 read"),
        (SPINNING, seen("T", "do_signal_stop"), "7 of 8 ranks burn a core; rank 3 (gpu-001 GPU 3) "
                                                "is stopped (state T), 8 of 8 read"),
        (STEPPING, seen("t", "ptrace_stop"), "7 of 8 ranks work; rank 3 (gpu-001 GPU 3) "
                                             "is held by a debugger (state t), 8 of 8 read"),
        (STEPPING, seen("D", "rpc_wait_bit_killable"), "7 of 8 ranks work; rank 3 (gpu-001 GPU 3) "
                                                       "is blocked (state D) in `rpc_wait_bit_killable`, 8 of 8 read"),
    ],
)  # fmt: skip
def test_the_odd_one_out_is_named(usual: Samples, odd: Samples, words: str) -> None:
    found = look(with_odd(usual, odd, 3))
    assert (found.summary, found.ranks) == (words, (3,))
    assert "rank 3 (gpu-001 GPU 3): pid 4703" in found.lines


def test_it_says_what_helps() -> None:
    assert look(with_odd(WAITING, SLEEPING, 3)).advice == (
        "read its stack: `trainmon-tui stacks`, or x in the dashboard"
    )
    assert look(with_odd(WAITING, seen("T", ""), 3)).advice == (
        "if nobody has stopped it on purpose, `kill -CONT 4703` on its node continues it"
    )
    assert look([WAITING] * 8).advice == ""


def test_several_that_differ_are_all_named() -> None:
    found = look(with_odd(WAITING, SLEEPING, 3, 7) + [WAITING] * 8)
    assert found.ranks == (3, 7)
    assert found.summary == (
        "14 of 16 ranks wait in `futex_do_wait`; ranks 3 and 7 (gpu-001 GPU 3, 7) wait in "
        "`hrtimer_nanosleep`: differ, 16 of 16 read"
    )


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ([STEPPING] * 8, "8 of 8 ranks work; no rank is named: none differs, 8 of 8 read"),
        ([WAITING] * 8, "8 of 8 ranks wait in `futex_do_wait`; no rank is named: none differs, 8 of 8 read"),
        (with_odd(WAITING, SPINNING, 0), "7 of 8 ranks wait in `futex_do_wait`; 1 of 8 ranks burns a core; no "
                                         "rank is named: rank 0 is among those that differ, and has work of "
                                         "its own, 8 of 8 read"),
        (with_odd(WAITING, seen("D", "folio_wait_bit"), 0),
         "7 of 8 ranks wait in `futex_do_wait`; 1 of 8 ranks is blocked (state D) in `folio_wait_bit`; no rank is "
         "named: rank 0 is among those that differ, and has work of its own, 8 of 8 read"),
        (with_odd(WAITING, SPINNING, 0, 1, 2, 3),
         "4 of 8 ranks burn a core; 4 of 8 ranks wait in `futex_do_wait`; no rank is named: fewer than "
         "three quarters of them are stuck in the same place, 8 of 8 read"),
    ],
)  # fmt: skip
def test_nobody_is_named_without_proof(read: list[Samples], words: str) -> None:
    assert (look(read).summary, look(read).ranks) == (words, ())


@pytest.mark.parametrize(
    ("late", "usual"),
    [
        pytest.param(seen("RSSSSS", switches=0.2), WAITING, id="it ran when the look began"),
        pytest.param((*seen(wchan="ep_poll")[:2], *WAITING[2:]), WAITING, id="it waited elsewhere"),
        pytest.param((*WAITING[:2], *SPINNING[2:]), SPINNING, id="it waited, and all others burn a core"),
    ],
)
def test_who_came_to_do_like_the_others_a_moment_later_is_not_named(late: Samples, usual: Samples) -> None:
    found = look([usual, late, usual, SLEEPING, *[usual] * 4])
    assert (found.ranks, found.summary[:15]) == ((3,), "7 of 8 ranks wa" if usual == WAITING else "7 of 8 ranks bu")
    assert look([usual, late, late, SLEEPING, *[usual] * 4]).ranks == (), "too many were not there yet"


def test_who_is_only_stopped_at_the_end_is_not_named() -> None:
    assert look(with_odd(WAITING, (*WAITING[:2], *seen("T", "do_signal_stop")[2:]), 3)).ranks == ()


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(with_odd(seen(switches=8), SLEEPING, 3), id="the others go on"),
        pytest.param(with_odd(STEPPING, SPINNING, 3), id="the others work"),
        pytest.param(with_odd(WAITING, SPINNING, 0, 4), id="node by node, one saves"),
        pytest.param(with_odd(seen(wchan="futex_wait_queue_me"), WAITING, 3), id="two kernels"),
        pytest.param(
            with_odd(WAITING, seen(wchan="wait_woken", call="45", kernel="6.8.0 x86_64"), 3), id="a kernel of its own"
        ),
        pytest.param(with_odd(WAITING, seen(wchan=""), 3), id="where it waits is not readable"),
        pytest.param(with_odd(seen(wchan="", call=""), seen(wchan="", call=""), 3), id="nowhere readable"),
        pytest.param([seen("T", "do_signal_stop")] * 8, id="all are stopped"),
        pytest.param(with_odd(seen("T", "do_signal_stop"), WAITING, 3), id="most are stopped"),
        pytest.param(with_odd(WAITING, SLEEPING, 2, 3, 4), id="too many differ"),
        pytest.param(with_odd(STEPPING, seen("D", "folio_wait_bit", switches=3), 3), id="reads of a disk that go on"),
        pytest.param([SLEEPING, WAITING], id="two ranks"),
    ],
)
def test_healthy_runs_and_open_questions_accuse_nobody(read: list[Samples]) -> None:
    assert look(read).ranks == ()


def test_a_run_that_makes_its_steps_in_time_is_not_accused() -> None:
    found = look(with_odd(WAITING, SLEEPING, 3), calm="its last step came 2s ago, usually one comes every 1s")
    assert found.ranks == ()
    assert found.summary == (
        "7 of 8 ranks wait in `futex_do_wait`; 1 of 8 ranks waits in `hrtimer_nanosleep`; no rank is named: its last "
        "step came 2s ago, usually one comes every 1s, 8 of 8 read"
    )
    assert look(with_odd(WAITING, seen("T", ""), 3), calm="it is saving").ranks == (3,)


def test_where_no_rank_shows_its_wait_the_system_calls_are_compared() -> None:
    found = look(with_odd(seen(wchan=""), seen(wchan="", call="230"), 3))
    assert found.summary == (
        "7 of 8 ranks wait in system call 202; rank 3 (gpu-001 GPU 3) waits in system call 230: differs, 8 of 8 read"
    )


def test_ranks_that_were_not_read_count_against_a_majority() -> None:
    half = dict(enumerate(with_odd(WAITING, SLEEPING, 3))) | {6: (*WAITING[:3], None, None, None), 7: (None,) * 6}
    found = look(half, unread=["rank 6: its process has ended, or is hidden"])
    assert found.ranks == ()
    assert found.summary.endswith("fewer than three quarters of them are stuck in the same place, 6 of 8 read")
    assert found.lines[-1] == "rank 6: its process has ended, or is hidden"
    nobody = look({}, unread=["8 ranks on gpu-001: no answer"])
    assert (nobody.summary, nobody.ranks) == ("no rank is named: none could be read, 0 of 8 read", ())


def test_names_of_the_kernel_are_shown_without_what_a_terminal_obeys() -> None:
    found = look(with_odd(WAITING, seen(wchan="x\x1b[2J{s}"), 3))
    assert "in `x2Js`: differs" in found.summary
