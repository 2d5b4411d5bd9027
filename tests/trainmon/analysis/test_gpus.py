"""What Xids and SXids mean, and who holds GPUs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from trainmon.analysis.gpus import (
    HARDWARE,
    IGNORED,
    Holder,
    by_user,
    gaps,
    has_all_gpus,
    holders,
    meaning,
    switch_meaning,
)
from trainmon.model import Gpu, GpuAverage, GpuInstance, Job, Node, Process, Source, State

RESET_OR_REBOOT = (46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, *range(144, 151), 155, 156, 158)
PROGRAMS = (8, 11, 13, 25, 31, 32, 39, 40, 41, 68, 69, 70, 72, 75, 77, 80, 83, 85, 88, 96, 105, 126, 135, 139)
NEVER_ALONE = (14, 37, 38, 43, 44, 45, 63, 66, 67, 93, 106, 107, 137, 141)


@pytest.mark.parametrize("code", RESET_OR_REBOOT)
def test_what_needs_a_reset_or_a_reboot_is_hardware(code: int) -> None:
    text = "RLW_REMAP Fatal XC1 i0 Link 03" if code in range(144, 151) else None
    assert meaning(code, text).kind == "hardware"
    assert "drain" in meaning(code, text).advice


@pytest.mark.parametrize("code", PROGRAMS)
def test_what_a_program_does_is_no_hardware(code: int) -> None:
    assert meaning(code).kind == "application"


@pytest.mark.parametrize("code", NEVER_ALONE)
def test_what_is_never_a_cause_alone_is_ignored(code: int) -> None:
    assert meaning(code).kind == "ignored"


@pytest.mark.parametrize("code", [92, 94, 109])
def test_hardware_that_coped_is_watched(code: int) -> None:
    assert meaning(code).kind == "watch"


@pytest.mark.parametrize("code", range(144, 151))
def test_a_node_is_not_drained_for_what_the_driver_calls_nonfatal(code: int) -> None:
    mild = meaning(code, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000004)")
    assert (mild.kind, "drain" in mild.advice) == ("watch", False)
    assert meaning(code, "NETIR Fatal XC0 i0 Link -1 (0x000fe406)").kind == "hardware"


def test_no_code_is_in_two_classes() -> None:
    assert not set(HARDWARE) & set(IGNORED)
    assert not {*PROGRAMS} & {*HARDWARE, *IGNORED}


def test_a_code_that_is_in_no_list_is_to_be_looked_up() -> None:
    assert meaning(999) == ("unknown", "not in NVIDIA's catalogue", meaning(999).advice)
    assert meaning(999).advice.startswith("look it up")
    assert meaning(78).name == "vGPU could not start"


@pytest.mark.parametrize(
    ("action", "kind"),
    [("Drain and Reset", "hardware"), ("Node Reboot Required", "hardware"), ("GPU Reset Required", "hardware"),
     ("Drain P2P", "hardware"), ("None", "ignored")],
)  # fmt: skip
def test_of_154_the_text_is_the_verdict(action: str, kind: str) -> None:
    found = meaning(154, f"GPU recovery action changed from 0x1 (GPU Reset Required) to 0x4 ({action})")
    assert found.kind == kind
    assert kind == "ignored" or found.name == f"the driver recommends: {action}"


def test_154_without_its_text_is_a_word_to_look_after() -> None:
    assert meaning(154).kind == "watch"


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [(12028, "NVSwitch: Non-fatal, Link 61 egress non-posted PRIV error (First)", "watch"),
     (20034, "NVSwitch: Fatal, Link 30 LTSSM Fault Up", "hardware"),
     (23005, "NVSwitch: something new", "hardware"),
     (31337, "NVSwitch: something new", "unknown")],
)  # fmt: skip
def test_an_sxid_is_what_the_driver_calls_it(code: int, text: str, kind: str) -> None:
    assert switch_meaning(code, text).kind == kind


# ---- who holds GPUs --------------------------------------------------------------------------------------------------

NOW = 1_000.0


def gpu(index: int, used: int | None = 90, *users: str, **more: object) -> Gpu:
    processes = tuple(Process(pid, user, 1_000 * (pid + 1)) for pid, user in enumerate(users))
    return Gpu(index=index, utilization_pct=used, memory_used_mib=9_000, processes=processes, **more)  # type: ignore[arg-type]


def node(name: str, *gpus: Gpu, **more: object) -> Node:
    return Node(name=name, cluster="c", probe="nvml", gpus=gpus, gpus_at=NOW, **more)  # type: ignore[arg-type]


def job(number: int, user: str, *nodes: str, **more: object) -> Job:
    return Job(
        cluster="c", id=str(number), number=number, user=user, state="RUNNING", nodes=nodes, detail_at=NOW, **more
    )  # type: ignore[arg-type]


def held(nodes: tuple[Node, ...], jobs: tuple[Job, ...] = ()) -> State:
    sources = {
        f"node:{one.name}": Source(name=f"node:{one.name}", kind="node", cluster="c", health="ok") for one in nodes
    }
    return State(at=NOW, nodes={one.name: one for one in nodes}, jobs={one.key: one for one in jobs}, sources=sources)


def counts(found: list[Holder]) -> list[tuple[object, ...]]:
    return [(one.user, one.held, one.busy, one.idle, one.memory_mib) for one in found]


def test_without_slurm_a_gpu_of_two_users_counts_for_each_with_its_own_memory() -> None:
    found = holders(held((node("n", gpu(0, 90, "ana", "bo"), gpu(1, 3, "bo"), gpu(2)),)))
    assert counts(found) == [("bo", 2, 1, 1, 3_000), ("ana", 1, 1, 0, 1_000)]
    assert all(one.jobs == () for one in found)


def test_with_slurm_a_job_holds_what_slurm_names_and_idle_holders_are_first() -> None:
    one = node("n", gpu(0, 90, "ana"), gpu(1, 0), gpu(2, 0, "bo"), gpu(3, 0))
    jobs = (
        job(1, "ana", "n", gpu_indices={"n": (0, 1)}), job(2, "bo", "n", gpu_indices={"n": (3,)}),
        job(3, "cy", "gone", gpus=8), job(4, "dee", "n"),
    )  # fmt: skip
    state = held((one,), jobs)
    assert counts(holders(state)) == [
        ("bo", 1, 0, 1, 9_000), ("cy", 8, None, None, None), ("ana", 2, 1, 1, 10_000),
    ]  # fmt: skip
    assert gaps(holders(state), state) == ("1 node without current numbers: gone; 1 GPU in use by no known job or user")
    unread = replace(job(5, "eve", "n"), detail_at=None)
    assert "1 job whose GPUs are not read yet" in gaps([], held((one,), (unread,)))


def test_a_user_has_all_jobs_and_a_gpu_of_two_of_them_once() -> None:
    jobs = (
        job(1, "ana", "n", gpu_indices={"n": (0, 1)}), job(2, "ana", "m", gpu_indices={"m": (0,)}),
        job(3, "ana", "n", gpu_indices={"n": (1,)}),
    )  # fmt: skip
    (ana,) = by_user(holders(held((node("n", gpu(0), gpu(1, 0)), node("m", gpu(0))), jobs)))
    assert ({one.id for one in ana.jobs}, ana.held, ana.busy, ana.idle) == ({"1", "2", "3"}, 4, 2, 1)


def test_without_indices_all_gpus_of_the_nodes_count_or_those_with_a_process_of_the_user() -> None:
    one = node("n", gpu(0, 90, "ana"), gpu(1, 0))
    assert [found.measured for found in holders(held((one,), (job(1, "ana", "n", gpus=2),)))] == [2]
    assert [found.measured for found in holders(held((one,), (job(1, "ana", "n", gpus=1),)))] == [1]
    confined = node("n", gpu(0), gpu(1, 0), confined=True)
    assert [found.measured for found in holders(held((confined,), (job(1, "a", "n", gpu_indices={"n": (6, 7)}),)))] == [
        2
    ]
    assert [found.measured for found in holders(held((confined,), (job(1, "a", "n", gpu_indices={"n": (7,)}),)))] == [0]


def test_busy_is_the_average_of_minutes_and_what_is_not_measured_is_neither_busy_nor_idle() -> None:
    average = (GpuAverage(index=0, since=0.0, at=NOW, utilization_pct=70.0),)
    one = node("n", gpu(0, 0), gpu(1, 4), gpu(2, None), gpu(3, 50, mig=True), paces=average)
    (found,) = holders(held((one,), (job(1, "ana", "n", gpu_indices={"n": (0, 1, 2, 3)}),)))
    assert (found.held, found.measured, found.busy, found.idle, found.is_idle) == (4, 2, 1, 1, False)


def test_old_numbers_are_no_numbers() -> None:
    state = replace(held((node("n", gpu(0, 0, "ana")),), (job(1, "ana", "n", gpu_indices={"n": (0,)}),)), at=NOW + 100)
    assert counts(holders(state)) == [("ana", 1, None, None, None)]


def test_the_numbers_of_slurm_are_those_of_instances_where_a_gpu_has_some() -> None:
    cut = gpu(0, None, "ana", mig=True, instances=tuple(GpuInstance(str(number)) for number in range(7)))
    one = node("n", cut, gpu(1, 0), gpu(2, 0), gpu(3, 0))
    (found,) = holders(held((one,), (job(1, "ana", "n", gpus=4, gpu_indices={"n": (2, 3, 4, 5)}),)))
    assert [*found.uses] == [("n", 0)], "GPUs 2 and 3 are not those of the job"
    assert (found.held, found.measured, found.busy, found.memory_mib) == (4, 0, None, 1_000)
    assert not has_all_gpus(job(1, "ana", "n", gpus=4), held((one,)))
    assert has_all_gpus(job(1, "ana", "n", gpus=10), held((one,)))
    unlisted = node("n", gpu(0, None, mig=True), gpu(1, 0))
    assert not has_all_gpus(job(1, "ana", "n", gpus=2), held((unlisted,)))


def test_a_display_server_holds_no_gpu() -> None:
    small = Gpu(index=0, utilization_pct=0, processes=(Process(1, "root", 4), Process(2, "ana", 300)))
    assert [one.user for one in holders(held((node("n", small),)))] == ["ana"]


@pytest.mark.parametrize(
    ("processes", "memory"),
    [
        ((Process(1, "root", 4), Process(2, "ana", None)), None),
        ((Process(1, "root", 4), Process(2, None, 9_000)), None),
        ((Process(1, "root", 4), Process(2, None, None)), None),
        ((Process(1, "root", 4), Process(2, "ana", 70), Process(3, "ana", None)), 70),
        ((Process(1, "root", 4),), None),
        ((Process(1, "bo", 8_990),), 0),
        ((Process(1, None, 4),), 9_000),
        ((), 9_000),
    ],
)
def test_memory_of_a_user_that_is_not_measured_is_not_0(processes: tuple[Process, ...], memory: int | None) -> None:
    one = Gpu(index=0, utilization_pct=0, memory_used_mib=9_000, processes=processes)
    (found,) = (
        found
        for found in holders(held((node("n", one),), (job(1, "ana", "n", gpu_indices={"n": (0,)}),)))
        if found.jobs
    )
    assert found.memory_mib == memory
