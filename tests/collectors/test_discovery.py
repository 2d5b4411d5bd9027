"""What logs name, as the runs and the plan have it: checkpoints that were seen, and W&B runs of our own server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from collectors.assignment import WatchPlan, assign
from collectors.connections import local_hostname
from collectors.discovery import RunDiscovery
from collectors.wandb.login import Credentials
from tests.lab.checkpoints import SAVES, made
from tests.trainmon.analysis.checkpoints.reading import NOW, listed
from trainmon.config import ClusterSettings, RunSettings, Settings, load_settings
from trainmon.model import GpuFactsAll, Job, LogChunk, OwnProcess, RunSpec, WandbDirectory, WandbRows

KEY = Credentials("https://api.wandb.ai", "~/.netrc")
OWN = Credentials("http://10.0.0.7:8080", "WANDB_API_KEY")
TEAM = Credentials("https://api.wandb.example.org", "WANDB_API_KEY")
PAGE = "wandb: 🚀 View run at https://wandb.ai/ana/owt/runs/3x0k2v1q"


def discovery(settings: Settings, folder: Path, login: Credentials = KEY, **said: Any) -> RunDiscovery:
    """After one poll of the queue, in which our job `llm` runs on n1 with this working directory."""
    found = RunDiscovery(settings, lambda: login)
    facts = {"name": "llm", "user": "ana", "batch": True, "stdout": "/logs/7.out", "workdir": str(folder), **said}
    job = Job(cluster=settings.clusters[0].name, id="7", number=7, state="RUNNING", nodes=("n1",), **facts)
    found.update(job.cluster, (job,), "ana", NOW)
    return found


def assignments(plan: WatchPlan) -> tuple[WandbDirectory, ...]:
    specs, _ = assign([plan], plan.hosts)
    return tuple(one for spec in specs.values() for one in spec.wandb)


def chunk(*lines: str) -> LogChunk:
    return LogChunk(v=1, t=NOW, id="llm", path="/logs/7.out", mentions=lines)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDiscovery:
    monkeypatch.chdir(tmp_path)
    settings, _ = load_settings(None, (), {"HOME": str(tmp_path)})
    return discovery(settings, tmp_path)


def run(found: RunDiscovery) -> RunSpec:
    (only,) = found.runs
    return only


def test_without_a_config_this_machine_and_the_nodes_of_our_jobs_are_watched(found: RunDiscovery) -> None:
    plan = found.plan(found._settings.clusters[0])
    assert (plan.hosts, plan.nodes) == ((local_hostname(), "n1"), {local_hostname(), "n1"})
    assert plan.runs == (run(found),)


def test_a_directory_counts_when_checkpoints_were_seen_in_it(found: RunDiscovery, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert found.read(chunk("saving checkpoint to out"), NOW)
    assert not found.read(listed(tmp_path), NOW), "nobody has named it"
    assert run(found).checkpoints is None
    assert found.plan(found._settings.clusters[0]).candidates == (str(out),)
    assert found.is_relevant("n1", listed(out))
    assert not found.read(listed(out), NOW)
    made(out, SAVES["torchtitan"], 500, at=NOW - 3600)
    assert found.read(listed(out), NOW)
    assert (run(found).checkpoints, run(found).from_log) == (str(out), ("checkpoints",))
    assert not found.read(listed(out), NOW), "it is known"
    found.update("local", (), "ana", NOW + 30)
    assert run(found).checkpoints == str(out), "a run keeps it after its job"


def test_the_directory_of_a_saved_trainer_state_counts_when_checkpoints_were_seen_in_it(
    found: RunDiscovery, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    made(out, SAVES["hf"], 500, at=NOW - 60)
    state = WandbRows(v=1, t=NOW, id="llm", path=str(out / "checkpoint-500" / "trainer_state.json"))
    assert found.is_relevant("n1", state)
    assert not found.is_relevant("n1", replace(state, path=None)), "there is none yet"
    assert not found.is_relevant("n1", replace(state, path=str(out / "trainer_state.json"))), "it is in no checkpoint"
    assert found.read(state, NOW)
    assert not found.read(state, NOW), "it is known"
    assert found.read(listed(out), NOW)
    assert (run(found).checkpoints, run(found).from_log) == (str(out), ("checkpoints",))


@pytest.mark.parametrize(
    ("login", "line", "is_asked"),
    [
        (KEY, PAGE, True),
        (Credentials("https://api.wandb.ai", None, "there is no key"), PAGE, False),
        (KEY, PAGE.replace("wandb.ai", "wandb.ai.example.org"), False),
        (OWN, PAGE, False),
        (OWN, PAGE.replace("https://wandb.ai", OWN.url), True),
        (TEAM, PAGE.replace("wandb.ai", "app.wandb.example.org"), True),
    ],
)
def test_a_wandb_run_is_asked_for_only_at_the_server_of_our_key(
    tmp_path: Path, login: Credentials, line: str, is_asked: bool
) -> None:
    settings = Settings(clusters=(ClusterSettings(name="prod", nodes=None),))
    found = discovery(settings, tmp_path, login)
    found.read(chunk(line), NOW)
    assert (run(found).wandb is not None) is is_asked
    assert ("wandb" in run(found).from_log) is is_asked


def test_what_the_config_names_is_not_looked_for(tmp_path: Path) -> None:
    cluster = ClusterSettings(name="prod", nodes=("n1",))
    own = RunSettings(name="llm", checkpoints="/ckpt", wandb="team/p", run="x")
    found = discovery(Settings(clusters=(cluster,), runs=(own,)), tmp_path)
    before = found.runs
    found.read(chunk(PAGE, "saving checkpoint to /out"), NOW)
    assert (found.runs, found.candidates()) == (before, ())


def test_a_configured_run_without_them_gets_them_from_its_log(tmp_path: Path) -> None:
    made(tmp_path, SAVES["hf"], 500, at=NOW - 3600)
    cluster = ClusterSettings(name="prod", nodes=("n1",))
    found = discovery(Settings(clusters=(cluster,), runs=(RunSettings(name="llm"),)), tmp_path)
    found.read(chunk(PAGE, f"Saving model checkpoint to {tmp_path}/checkpoint-500"), NOW)
    found.read(listed(tmp_path), NOW)
    assert run(found).from_log == ("checkpoints", "wandb")


# ---- processes on the GPUs of this machine --------------------------------------------------------------------------


def processes(*own: OwnProcess) -> GpuFactsAll:
    return GpuFactsAll(v=1, t=NOW, g=(), expected=1, own=own)


def trainer(folder: Path) -> OwnProcess:
    return OwnProcess(pid=7, command="python train.py", workdir=str(folder), stdout=f"{folder}/train.log")


def without_slurm(folder: Path) -> RunDiscovery:
    settings, _ = load_settings(None, (), {"HOME": str(folder)})
    return RunDiscovery(settings, lambda: KEY)


def test_our_process_is_a_run_whose_log_is_read_here_and_names_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found, facts = without_slurm(tmp_path), processes(trainer(tmp_path))
    assert found.is_relevant(local_hostname(), facts)
    assert not found.is_relevant("n1", facts), "it is a process of another machine"
    assert found.read(facts, NOW)
    assert not found.is_relevant(local_hostname(), facts), "nothing has changed"
    (spec,) = found.runs
    assert (spec.name, spec.log, spec.nodes) == ("train", f"{tmp_path}/train.log", (local_hostname(),))
    plan = found.plan(found._settings.clusters[0])
    assert (plan.hosts, plan.runs) == ((local_hostname(),), (spec,))
    assert found.read(replace(chunk("saving checkpoint to out"), id="train"), NOW)
    assert found.plan(found._settings.clusters[0]).candidates == (f"{tmp_path}/out",)
    assert found.read(processes(), NOW)
    assert [run.ended_at for run in found.runs] == [NOW]


def test_where_slurm_answers_or_a_config_is_used_processes_are_no_runs(found: RunDiscovery, tmp_path: Path) -> None:
    before = found.runs
    assert not found.read(processes(trainer(tmp_path)), NOW)
    assert found.runs == before
    alone = without_slurm(tmp_path)
    assert alone.read(processes(trainer(tmp_path)), NOW)
    assert alone.update("local", (), "ana", NOW)
    assert alone.runs == ()
    configured = RunDiscovery(Settings(clusters=(ClusterSettings(),)), lambda: KEY)
    assert not configured.is_relevant(local_hostname(), processes(trainer(tmp_path)))


def test_files_of_metrics_are_looked_for_where_the_log_names_them_beside_the_checkpoints_and_in_the_working_directory(
    tmp_path: Path,
) -> None:
    settings = Settings(
        clusters=(ClusterSettings(name="prod", login="n1"),), runs=(RunSettings(name="llm", checkpoints="/c/out"),)
    )
    found = discovery(settings, tmp_path, started_at=NOW - 500)
    found.read(chunk("  tensorboard_dir ........ /fsx/tb"), NOW)
    spec = run(found)
    assert spec.metrics_found == ("/fsx/tb", "/c/out", "/c", str(tmp_path))
    [wanted] = assignments(found.plan(settings.clusters[0]))
    assert (wanted.directory, wanted.found, wanted.since) == ("", spec.metrics_found, NOW - 560)


def test_a_directory_that_another_run_uses_is_nobodys_and_a_configured_one_is_the_only_one(tmp_path: Path) -> None:
    runs = (
        RunSettings(name="llm", checkpoints="/c/one"),
        RunSettings(name="other", checkpoints="/c/two"),
        RunSettings(name="third", checkpoints="/c/three", metrics_dir="/fsx/tb"),
    )
    found = discovery(Settings(clusters=(ClusterSettings(name="prod", login="n1"),), runs=runs), tmp_path)
    assert [one.metrics_found for one in found.runs] == [("/c/one", str(tmp_path)), ("/c/two",), ()]
    assert found.runs[2].wandb_dir == "/fsx/tb"


def test_runs_without_any_job_have_them_at_once() -> None:
    settings = Settings(
        clusters=(ClusterSettings(name="prod", login="n1"),), runs=(RunSettings(name="llm", checkpoints="/c/out"),)
    )
    assert run(RunDiscovery(settings)).metrics_found == ("/c/out", "/c")


def test_a_directory_above_that_of_another_run_is_nobodys_and_so_is_one_that_two_logs_name(tmp_path: Path) -> None:
    runs = (RunSettings(name="llm", checkpoints="/c/one"), RunSettings(name="other", checkpoints="/c/one/x/ckpt"))
    found = discovery(Settings(clusters=(ClusterSettings(name="prod", login="n1"),), runs=runs), tmp_path)
    for name in ("llm", "other"):
        found.read(replace(chunk("  tensorboard_dir ........ /fsx/tb"), id=name), NOW)
    assert [one.metrics_found for one in found.runs] == [(str(tmp_path),), ("/c/one/x/ckpt", "/c/one/x")]


def test_without_slurm_no_file_counts_that_is_older_than_the_process(found: RunDiscovery, tmp_path: Path) -> None:
    own = OwnProcess(pid=7, command="python sft.py", workdir=str(tmp_path), started_s=500.0)
    found._jobs.clear()
    found.read(GpuFactsAll(v=1, t=NOW, g=(), own=(own,)), NOW)
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    since = next(one.metrics_since for one in found.runs if one.process is not None)
    assert since == pytest.approx(booted_at + 440.0, abs=5.0)
