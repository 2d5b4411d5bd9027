"""snapshot: one reading of everything, for people and for scripts."""

from __future__ import annotations

import getpass
import json
import os
import re
import time
from pathlib import Path

from msgspec.structs import replace

from collectors.connections import local_hostname
from tests.alerts.daemon import imported
from tests.collectors.probe.files.wandb_files import framed, history, write
from tests.lab.disks import OF_ANY_DISK
from tests.lab.nvml import Nvml
from tests.trainmon.cli.test_main import trainmon
from trainmon.cli.act.run import have_answered
from trainmon.cli.snapshot import are_read, has_answered, lines, requested_sources
from trainmon.cli.terminal import table
from trainmon.config import ClusterSettings, DiskSettings, RunSettings, Settings
from trainmon.engine.snapshot import exit_status, verdict
from trainmon.model import Cluster, Disk, Gpu, Log, Node, Progress, Run, RunSpec, Source, State, WandbFile

MEGATRON = (
    " [2026-01-02 03:04:05] iteration      120/    1000 | consumed samples:        30720 |"
    " elapsed time per iteration (ms): 4100.0 | learning rate: 1.000000E-04 | global batch size:   256 |"
    " lm loss: 2.113000E+00 | loss scale: 1.0 | grad norm: 0.310 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |\n"
)


def test_this_machine_and_its_run_as_json(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(MEGATRON)
    (tmp_path / "c.toml").write_text(
        f'[[run]]\nname = "r"\nlog = "{tmp_path}/train.log"\ntarget_step = 1000\n[[disk]]\npath = "/"\n' + OF_ANY_DISK
    )
    done = trainmon("snapshot", "--json", "--config", "c.toml", "--wait", "30s", cwd=tmp_path, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["version"], document["verdict"]) == (1, "well")
    assert [source["health"] for source in document["sources"]] == ["ok"]
    assert document["nodes"][0]["memory_total_mib"] > 0
    assert "/" in [disk["path"] for disk in document["disks"]]
    (run,) = document["runs"]
    assert (run["name"], run["step"], run["target_step"], run["loss"]) == ("r", 120, 1000, 2.113)
    assert run["log"]["path"] == str(tmp_path / "train.log")


def test_a_machine_whose_nvml_has_no_gpus_is_not_waited_for(tmp_path: Path) -> None:
    """And neither command loads what only the dashboard or the channels need."""
    env = Nvml(tmp_path, gpus=0).environment() | {"HOME": str(tmp_path), "PYTHONPROFILEIMPORTTIME": "1"}
    started = time.monotonic()
    done = trainmon("snapshot", "--wait", "30s", cwd=tmp_path, **env)
    assert (done.returncode, time.monotonic() - started < 15) == (0, True), done.stderr
    assert " nvml   -     " in done.stdout
    assert not {"textual", "rich", "urllib3", "asyncio"} & imported(done.stderr)
    checked = trainmon("check", cwd=tmp_path, **env)
    assert re.search("GPUs +none", checked.stdout), checked.stdout


def test_users_without_slurm_hold_the_gpus_with_their_processes(tmp_path: Path) -> None:
    """On this machine, without a config."""
    nvml = Nvml(tmp_path, gpus=3).process(0, os.getpid(), 900).set(1, utilization=0).process(1, os.getpid(), 100)
    done = trainmon("users", "--json", "--wait", "30s", cwd=tmp_path, **nvml.environment() | {"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["users"] == [{
        "user": getpass.getuser(), "cluster": "local", "by": "processes", "jobs": [], "gpus_held": 2,
        "gpus_measured": 2, "gpus_busy": 1, "gpus_idle": 1, "memory_mib": 1_000, "nodes": [local_hostname()],
    }]  # fmt: skip
    assert (found["jobs"], found["nodes_missing"]) == ([], [])
    assert found["missing"] == "1 GPU in use by no known job or user"


def test_a_quota_of_the_config_is_queried_and_reported(tmp_path: Path) -> None:
    script = tmp_path / "lfs"
    script.write_text(f"#!/bin/sh\necho '{tmp_path} 9437184 0 10485760 - 12 0 100 -'\n")
    script.chmod(0o755)
    (tmp_path / "c.toml").write_text(
        f'[[disk]]\npath = "{tmp_path}"\nlag = "5m"\n'
        f'quota = {{ command = ["{script}", "quota", "-q", "-u", "me"], parser = "lustre" }}\n'
    )
    done = trainmon("snapshot", "--json", "--config", "c.toml", "--wait", "30s", cwd=tmp_path, HOME=str(tmp_path))
    document = json.loads(done.stdout)
    assert [source["health"] for source in document["sources"] if source["name"].startswith("quota:")] == ["ok"]
    (disk,) = [disk for disk in document["disks"] if disk["path"] == str(tmp_path)]
    assert (disk["lag"], disk["quota"]["left_bytes"], disk["quota"]["left_inodes"]) == (300.0, 2**30, 88)


def test_a_log_format_of_the_config_is_understood(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("@7 of 9 :: 1.5\n")
    (tmp_path / "c.toml").write_text(
        "[[log_format]]\nname = 'mine'\n"
        "pattern = '^@(?P<step>[0-9]+) of (?P<target_step>[0-9]+) :: (?P<loss>[0-9.]+)'\n"
        f'[[run]]\nname = "r"\nlog = "{tmp_path}/train.log"\n'
    )
    done = trainmon("snapshot", "--json", "--config", "c.toml", "--wait", "30s", cwd=tmp_path, HOME=str(tmp_path))
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["step"], run["target_step"], run["loss"]) == (7, 9, 1.5)


def test_nothing_that_can_be_seen_is_exit_3_and_says_why(tmp_path: Path) -> None:
    argv = ("snapshot", "no-such-host.invalid", "--wait", "30s")
    done = trainmon(*argv, cwd=tmp_path, HOME=str(tmp_path), LC_ALL="C.UTF-8")
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[0].endswith("  no data")
    assert "no-such-host.invalid" in done.stdout


def test_a_terminal_without_unicode_gets_question_marks(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[[run]]\nname = "漢r"\n')
    done = trainmon("snapshot", "--config", "c.toml", cwd=tmp_path, HOME=str(tmp_path), PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "\n??r  unknown" in done.stdout


def test_a_source_has_answered_with_its_first_facts_or_its_failure() -> None:
    source = Source(name="node:n1", kind="node", cluster="c", phase="up")
    node = Node(name="n1", cluster="c", probe="nvml", host_at=1.0)
    assert not has_answered(State(), source)
    assert not has_answered(State(nodes={"n1": node}), source)
    assert has_answered(
        State(nodes={"n1": Node(name="n1", cluster="c", probe="nvml", host_at=1.0, gpus_at=1.0)}), source
    )
    assert has_answered(State(nodes={"n1": Node(name="n1", cluster="c", host_at=1.0)}), source)
    assert has_answered(State(), Source(name="node:n1", kind="node", cluster="c", phase="held"))
    assert has_answered(State(), Source(name="node:n1", kind="node", cluster="c", phase="retrying"))


def test_a_queue_has_answered_with_its_first_poll_or_when_its_host_cannot_be_reached() -> None:
    source = Source(name="slurm:c", kind="slurm", cluster="c", phase="waiting")
    login = Source(name="node:login1", kind="node", cluster="c", phase="retrying", health="down")
    clusters = {"c": Cluster(name="c", login="login1")}
    assert not has_answered(State(clusters=clusters), source)
    assert has_answered(State(clusters=clusters, sources={"node:login1": login}), source)
    answered = replace(source, phase="up", answered_at=1.0)
    assert has_answered(State(), answered)
    assert not has_answered(State(clusters=clusters), answered), "the details of its jobs are still to come"
    polled = {"c": replace(clusters["c"], is_polled=True)}
    assert has_answered(State(clusters=polled), answered)
    assert has_answered(State(), Source(name="slurm:c", kind="slurm", cluster="c", phase="retrying"))


def test_a_queue_and_a_host_that_have_not_answered_say_so() -> None:
    sources = {
        "node:n1": Source(name="node:n1", kind="node", cluster="c", phase="connecting", health="late"),
        "slurm:c": Source(name="slurm:c", kind="slurm", cluster="c", phase="waiting", health="late"),
    }
    text = "\n".join(lines(State(at=100.0, sources=sources)))
    assert re.search(r"^n1 .* no data yet$", text, re.MULTILINE)
    assert re.search(r"^c +late +\S+ +no data yet$", text, re.MULTILINE)


def test_files_are_read_once_each_host_that_answers_has_reported_its_own() -> None:
    up = Source(name="node:n1", kind="node", cluster="c", phase="up", health="ok", answered_at=1.0)
    run = Run(spec=RunSpec(name="r", cluster="c", log="/logs/r.out"))
    node = Node(name="n1", cluster="c", probe="nvml")
    state = State(nodes={"n1": node}, sources={"node:n1": up}, runs={"r": run})
    seen = replace(run, log=Log(host="n1", error="/logs/r.out does not exist"))
    assert not are_read(state, ())
    state = replace(state, runs={"r": seen})
    assert are_read(state, ())
    assert not are_read(state, {("n1", "/fsx")})
    assert are_read(state, {("n2", "/fsx")}), "n2 does not answer"
    assert are_read(
        replace(state, disks={"n1:/fsx": Disk(host="n1", cluster="c", path="/fsx", at=1.0)}), {("n1", "/fsx")}
    )
    assert are_read(replace(state, nodes={"n1": replace(node, probe="sh")}), {("n1", "/fsx")}), "it cannot read all"


def test_the_file_of_a_wandb_client_is_read_to_its_end(tmp_path: Path) -> None:
    data = framed(*(history(step, loss=1.5, text="x" * 60_000) for step in range(80)))
    file = write(tmp_path / "wandb", "offline-run-20260101_120000-aaaa1111", data)
    (tmp_path / "c.toml").write_text(f'[[run]]\nname = "r"\nwandb_dir = "{tmp_path}/wandb"\n')
    done = trainmon("snapshot", "--config", "c.toml", "--wait", "120s", "--json", cwd=tmp_path, HOME=str(tmp_path))
    (run,) = json.loads(done.stdout)["runs"]
    assert {key: run["wandb_file"][key] for key in ("rows", "size", "offset", "is_behind")} == {
        "rows": 80,
        "size": file.stat().st_size,
        "offset": file.stat().st_size,
        "is_behind": False,
    }


def test_of_a_wandb_file_that_is_not_read_to_its_end_it_says_how_far() -> None:
    spec = RunSpec(name="r", cluster="c", wandb_dir="/fsx/wandb")
    file = WandbFile(size=5_000_000, offset=2_000_000, is_behind=True, checked_at=99.0, logged_at=90.0)
    text = "\n".join(lines(State(at=100.0, runs={"r": Run(spec=spec, wandb_file=file)})))
    assert "from the file, newest row 10s old; only the first 40% of it is read" in text
    text = "\n".join(lines(State(at=100.0, runs={"r": Run(spec=spec)})))
    assert "from the file, not read yet" in text


def test_a_run_whose_log_alone_has_curves_has_no_row_of_wandb() -> None:
    run = Run(
        spec=RunSpec(name="r", cluster="c"), wandb_file=WandbFile(checked_at=99.0), log_metrics=WandbFile(points=9)
    )
    assert run.has_charts
    assert "W&B RUN" not in "\n".join(lines(State(at=100.0, runs={"r": run})))


def test_the_table_says_what_is_known_and_what_is_not() -> None:
    gpus = (
        Gpu(index=0, temperature_c=61, utilization_pct=90, memory_used_mib=1024, memory_total_mib=4096),
        Gpu(index=1, state="lost", error="GPU is lost"),
    )
    node = Node(name="n1", cluster="c", probe="nvml", gpus=gpus, gpus_at=99.0, host_at=99.0, load1=1.5)
    down = Source(name="node:n2", kind="node", cluster="c", health="down", error="no route", hint="try: ssh n2")
    state = State(
        at=100.0,
        sources={
            "node:n1": Source(name="node:n1", kind="node", cluster="c", health="ok", answered_at=99.0),
            "node:n2": down,
        },
        nodes={"n1": node},
        runs={
            "r": Run(spec=RunSpec(name="r", cluster="c"), progress=Progress(step=12880, at=94.0), why="steps advance")
        },
    )
    document = list(lines(state))
    assert document[0].endswith("  warning")
    assert document[2:4] == [
        "RUN  VERDICT  JOB  STEP    LOSS  STEP TIME  LAST STEP  CHECKPOINT  WHY",
        "r    unknown  -    12,880  ?     ?          6s         -           steps advance",
    ]
    assert document[6:] == [
        "n1    ok      nvml   2, 1 bad  61 C      90%       1.0G / 4.0G  1.5      ?       1s        GPU 1: GPU is lost",
        "n2    down    none   ?         ?         ?         ?            ?        ?       ?         "
        "no route; try: ssh n2",
    ]


def test_gpus_whose_numbers_are_old_say_so_though_the_rest_of_the_node_answers() -> None:
    source = Source(name="node:n1", kind="node", cluster="prod", health="ok", answered_at=99.0, period=5.0)
    node = Node(name="n1", cluster="prod", gpus=(Gpu(index=0, temperature_c=60),), gpus_at=40.0, host_at=99.0)
    text = "\n".join(lines(State(at=100.0, sources={source.name: source}, nodes={"n1": node})))
    assert "its GPUs were read 1m ago" in text


def test_gpus_that_prometheus_does_not_have_are_unknown() -> None:
    source = Source(name="node:n1", kind="node", cluster="prod", health="ok", answered_at=1.0)
    gpus = {}
    for probe in ("prometheus", "none"):
        node = Node(name="n1", cluster="prod", probe=probe, host_at=1.0, load1=2.0)  # type: ignore[arg-type]
        state = State(at=2.0, sources={source.name: source}, nodes={"n1": node})
        [row] = [line.split() for line in lines(state) if line.startswith("n1")]
        gpus[probe] = row[3]
    assert gpus == {"prometheus": "?", "none": "-"}


def test_what_strangers_wrote_is_printed_harmlessly() -> None:
    assert list(table(("A", "B"), [("\x1b[2Jx\ny", "\u202eb"), ("漢", "c")])) == ["A    B", "x y  b", "漢   c"]


def test_wandb_has_answered_with_its_first_list_or_its_failure() -> None:
    source = Source(name="wandb:llm", kind="wandb", cluster="c", period=60.0)
    assert not has_answered(State(), source)
    assert has_answered(State(), replace(source, answered_at=1.0, phase="up"))
    assert has_answered(State(), replace(source, phase="retrying"))


def test_an_action_does_not_wait_for_wandb() -> None:
    host = Source(name="node:n1", kind="node", cluster="c", phase="held")
    site = Source(name="wandb:llm", kind="wandb", cluster="c", period=60.0)
    assert have_answered(State(sources={"node:n1": host, "wandb:llm": site}))
    assert not have_answered(State(sources={"wandb:llm": site}))


def test_this_machine_counts_where_something_of_it_is_requested() -> None:
    run = RunSettings(name="r", wandb="team/video", group="g")
    alone = Settings(runs=(run,))
    assert requested_sources(alone) == {"wandb:r"}
    state = State(
        sources={
            f"node:{local_hostname()}": Source(
                name=f"node:{local_hostname()}", kind="node", cluster="local", health="ok", answered_at=1.0
            ),
            "wandb:r": Source(name="wandb:r", kind="wandb", cluster="local", health="down"),
        }
    )
    assert (verdict(state, requested_sources(alone)), verdict(state)) == ("blind", "warning")
    assert requested_sources(Settings(runs=(replace(run, log="/logs/r.log"),))) is None
    assert requested_sources(Settings(runs=(run, RunSettings(name="other")))) is None
    assert requested_sources(replace(alone, disks=(DiskSettings(path="/"),))) is None
    assert requested_sources(replace(alone, clusters=(ClusterSettings(nodes=("n1",)),))) is None
    assert requested_sources(Settings()) is None


def test_a_host_that_is_requested_is_not_hidden_by_what_is_watched_beside_it() -> None:
    """Its login host and its Slurm answer: of the host itself nothing is seen."""
    request = requested_sources(Settings(clusters=(ClusterSettings(login="login1", nodes=("n1",)),)), ("n1",))
    assert request == {"node:n1"}
    down = Source(name="node:n1", kind="node", cluster="local", health="down")
    login = Source(name="node:login1", kind="node", cluster="local", health="ok", answered_at=1.0)
    queue = Source(name="slurm:local", kind="slurm", cluster="local", health="ok", answered_at=1.0)
    state = State(sources={source.name: source for source in (down, login, queue)})
    assert (verdict(state, request), exit_status(state, request)) == ("blind", 3)
    seen = State(sources={**state.sources, "node:n1": replace(down, health="ok", answered_at=1.0)})
    assert (verdict(seen, request), exit_status(seen, request)) == ("well", 0)


def test_the_table_of_users_begins_in_the_first_line(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path, gpus=1).process(0, os.getpid(), 900)
    done = trainmon("users", "--wait", "30s", cwd=tmp_path, **nvml.environment() | {"HOME": str(tmp_path)})
    assert done.stdout.split()[:7] == ["USER", "JOBS", "GPUS", "BUSY", "IDLE", "MEMORY", "NODES"]
    assert done.stdout.startswith("USER"), done.stdout
