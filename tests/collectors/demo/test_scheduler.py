"""The demo's Slurm: the commands of a real one, put by the product's own client, and what they do to its world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.collectors.demo.stage import Stage
from trainmon.actions.execution import operations
from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import HostUnreachable
from trainmon.model import Job, State
from trainmon.slurm import commands, parse
from trainmon.slurm.client import Client, SlurmFailed


class Played:
    """A demo, its Slurm, and the State that follows from it."""

    def __init__(self, directory: Path, story: str | None = "hot") -> None:
        self.stage = Stage(directory, story=story)
        self.state = State(demo=True)
        self.play(2.0)
        self.slurm = Client(self.stage.demo.shell_of("gpu-001"))

    def play(self, seconds: float) -> Played:
        until = self.stage.clock.passed + seconds
        while self.stage.clock.passed < until:
            self.stage.play(min(until, self.stage.clock.passed + 2.0))
            self.state = reduce(self.state, [event for _, event in self.stage.events], self.stage.clock.now())
            self.stage.events.clear()
        return self

    def job(self, own: str) -> Job:
        return next(job for job in self.state.jobs.values() if job.id == own)

    def shown(self, own: str) -> Job:
        return parse.read_job(self.slurm.run(commands.show_job(own)), "demo")[0]


@pytest.fixture
def demo(tmp_path: Path) -> Played:
    return Played(tmp_path / "demo")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One for the tests that change nothing."""
    return Played(tmp_path_factory.mktemp("seen") / "demo")


def test_every_run_has_a_job_and_most_have_some_behind(seen: Played) -> None:
    behind = {name: run.queued_behind for name, run in seen.state.runs.items()}
    assert behind == {"video-2b": 4, "llm-7b": 7, "sft-chat": 0, "smol-3b": 2, "moe-1b": 5}
    for run in seen.state.runs.values():
        job = seen.state.jobs[run.job or ""]
        assert (job.state, job.nodes) == ("RUNNING", run.spec.nodes)
        assert job.restarts is not None
        assert Path(job.stdout or "").is_file()
        assert job.command == run.spec.script
    waiting = seen.job("418191_[1-4%1]")
    assert (waiting.reason, waiting.dependency) == ("Dependency", "afterany:418190(unfulfilled)")


def test_others_wait_too_and_one_is_held(seen: Played) -> None:
    foreign = seen.job("418352")
    assert (foreign.user, foreign.reason, foreign.node_count) == ("lea", "Priority", 8)
    held = seen.job("418360_[1-20%1]")
    assert (held.user, held.reason, held.priority, held.elements) == ("ana", "JobHeldUser", 0, 20)


def test_its_cluster_is_known_and_one_spare_is_idle(seen: Played) -> None:
    cluster = seen.state.clusters["demo"]
    assert (cluster.me, cluster.may_operate, cluster.spares) == ("ana", True, 1)
    idle = [node.name for node in seen.state.scheduler_nodes.values() if node.state == "IDLE"]
    assert idle == ["gpu-016"]


def test_a_requeued_job_waits_and_runs_again_with_one_restart_more(demo: Played) -> None:
    before = demo.job("418190").restarts or 0
    demo.slurm.run(commands.requeue("418190"))
    waiting = demo.shown("418190")
    assert (waiting.state, waiting.reason, waiting.restarts) == ("PENDING", "BeginTime", before + 1)
    demo.play(8)
    assert demo.job("418190").reason == "BeginTime"
    demo.play(20)
    job = demo.job("418190")
    assert (job.state, job.restarts) == ("RUNNING", before + 1)
    assert demo.job("418191_[1-4%1]").reason == "Dependency"
    log = Path(job.stdout or "").read_text()
    assert f"restart {before + 1}" in log
    assert "DUE TO JOB REQUEUE" not in log, "a requeue truncates the log"
    assert demo.play(20).state.runs["video-2b"].verdict == "healthy"


def test_a_cancelled_job_is_followed_by_the_one_behind_it(demo: Played) -> None:
    demo.slurm.run(commands.cancel("418190"))
    demo.play(6)
    assert demo.job("418190").state == "CANCELLED"
    demo.play(14)
    assert demo.job("418191_1").state == "RUNNING"
    assert demo.job("418191_[2-4%1]").reason == "JobArrayTaskLimit"


def test_whoever_cancelled_is_named_once_it_has_left_the_queue(demo: Played) -> None:
    demo.slurm.run(commands.cancel("418301"))
    demo.play(320)
    job = demo.job("418301")
    assert job.gone_at is not None
    assert job.cancelled_by == "ana"


def test_a_held_array_does_not_start_until_it_is_released(demo: Played) -> None:
    demo.slurm.run(commands.hold("418191_[1-4]"))
    demo.slurm.run(commands.cancel("418190"))
    demo.play(30)
    held = demo.job("418191_[1-4%1]")
    assert (held.reason, held.priority) == ("JobHeldUser", 0)
    demo.slurm.run(commands.release("418191_[1-4]"))
    demo.play(12)
    assert demo.job("418191_1").state == "RUNNING"


def test_a_signal_makes_a_checkpoint(demo: Played) -> None:
    before = demo.state.runs["llm-7b"].checkpoints
    caught = {process.caught for node in ("gpu-007", "gpu-008") for gpu in demo.state.nodes[node].gpus
              for process in gpu.processes}  # fmt: skip
    assert all(mask is not None and mask & 1 << 9 for mask in caught)
    demo.slurm.run(commands.signal("418220_3", "USR1", batch=False))
    demo.play(40)
    after = demo.state.runs["llm-7b"].checkpoints
    assert before is not None
    assert after is not None
    assert (after.list[0].step or 0) > (before.list[0].step or 0)
    assert after.list[0].state == "committed"
    assert demo.job("418220_3").state == "RUNNING"


def test_more_elements_can_be_queued_in_a_login_shell(demo: Played) -> None:
    script = demo.state.runs["sft-chat"].spec.script or ""
    output = demo.slurm.run(commands.submit(3, "418301", None, script), login_shell=True)
    number = output.split()[-1]
    demo.play(6)
    assert demo.state.runs["sft-chat"].queued_behind == 3
    assert demo.job(f"{number}_[1-3%1]").dependency == "afterany:418301(unfulfilled)"


def test_a_run_kept_off_a_drained_node_starts_on_the_spare(demo: Played) -> None:
    demo.slurm.run(commands.exclude("418101_[1-2]", ["gpu-013"]))
    demo.slurm.run(commands.drain("gpu-013", "smells burnt"))
    demo.play(6)
    drained = demo.state.scheduler_nodes["gpu-013"]
    assert (drained.is_drained, drained.reason, drained.reason_by) == (True, "smells burnt", "ana")
    demo.slurm.run(commands.cancel("418100"))
    demo.play(20)
    assert demo.job("418101_1").nodes == ("gpu-012", "gpu-016")
    assert demo.state.runs["smol-3b"].spec.nodes == ("gpu-012", "gpu-016")
    demo.play(30)
    assert demo.state.nodes["gpu-016"].gpus[0].utilization_pct
    assert demo.state.nodes["gpu-013"].gpus[0].utilization_pct == 0


def test_a_lost_gpu_drains_its_node_and_what_comes_next_waits_for_it(tmp_path: Path) -> None:
    demo = Played(tmp_path / "demo", "lost").play(40)
    node = demo.state.scheduler_nodes["gpu-014"]
    assert (node.lost_gpus, node.reason_by) == (1, "slurm")
    assert demo.job("418270_7").exit_code == "1:0"
    assert demo.job("418270_[8-12%1]").reason == "ReqNodeNotAvail, UnavailableNodes:gpu-014"
    assert demo.state.runs["moe-1b"].verdict == "queued"
    demo.play(140)
    assert not demo.state.scheduler_nodes["gpu-014"].is_drained
    assert demo.job("418270_8").state == "RUNNING"


def test_elements_burn_under_a_kill_switch_and_somebody_queues_again(demo: Played) -> None:
    switch = Path(demo.state.runs["smol-3b"].spec.kill_switch or "")
    switch.touch()
    demo.play(90)
    assert demo.state.runs["smol-3b"].queued_behind == 0
    assert [demo.job(own).state for own in ("418100", "418101_1", "418101_2")] == ["COMPLETED"] * 3
    switch.unlink()
    demo.play(60)
    assert demo.state.runs["smol-3b"].verdict in {"starting", "healthy", "saving"}
    assert demo.state.runs["smol-3b"].queued_behind == 3


REFUSED: list[tuple[Callable[[], tuple[str, ...]], str, str]] = [
    (lambda: commands.show_job("99"), "gone", "Invalid job id specified"),
    (lambda: commands.requeue("99"), "gone", "Invalid job id specified for job 99"),
    (lambda: commands.requeue("418352"), "refused", "Job is pending execution for job 418352"),
    (lambda: commands.cancel("99"), "gone", "Kill job error on job id 99: Invalid job id specified"),
    (lambda: commands.drain("gpu-099", "x"), "refused", "Invalid node name specified"),
    (lambda: commands.submit(1, None, None, "/nowhere.sh"), "refused", "Unable to open file /nowhere.sh"),
]


@pytest.mark.parametrize(("argv", "kind", "words"), REFUSED)
def test_what_a_real_slurm_refuses_is_refused_in_its_words(
    seen: Played, argv: Callable[[], tuple[str, ...]], kind: str, words: str
) -> None:
    with pytest.raises(SlurmFailed, match=words) as failure:
        seen.slurm.run(argv())
    assert failure.value.kind == kind


def test_its_switch_files_are_touched_for_real(demo: Played) -> None:
    path = demo.state.runs["llm-7b"].spec.save_switch or ""
    shell = demo.stage.demo.shell_of("gpu-001")
    answer = shell.run(operations.create(path, "by a test", "0123456789ab"), timeout=60)
    assert operations.create_result(path, answer).status == "done"
    assert Path(path).read_text().startswith("by a test")
    demo.stage.demo.stop()


def test_other_hosts_are_not_connected(seen: Played) -> None:
    with pytest.raises(HostUnreachable):
        seen.stage.demo.shell_of("login9")


def test_steps_are_those_of_the_job_that_runs(seen: Played) -> None:
    assert parse.read_steps(seen.slurm.run(commands.steps("418190"))) == ("batch", "0")


def test_asking_where_a_script_would_start_submits_nothing(tmp_path: Path) -> None:
    played = Played(tmp_path)
    script = next(run.spec.script for run in played.state.runs.values() if run.spec.script)
    before = played.slurm.run(commands.queue(("ben", "kim", "me")))
    assert played.slurm.run(commands.test_only(None, script, ("gpu-014",))) == ""
    assert played.slurm.run(commands.queue(("ben", "kim", "me"))) == before
