"""The daemon requeues a real job that fails: within its budget, and not while a kill switch is armed."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.daemon import AlertDaemon
from tests.lab.clock import SetClock
from tests.lab.daemons import until
from tests.lab.slurm import Slurm
from tests.lab.webhook_receiver import WebhookReceiver

SCRIPT = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --output={folder}/{name}.log
echo "iteration        1/     100 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0E+00 |"
echo "[rank3]:[E1123 01:02:03.4] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, \
OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
exit 1
"""

CONFIG = """\
[[cluster]]
name = "lab"
every = "1s"
slurm_every = "15s"
[retry]
auto_requeue = "on"
[[run]]
name = "flaky"
log = "{folder}/flaky.log"
script = "{folder}/train.slurm"
kill_switch = "{folder}/kill-flaky"
[[run]]
name = "killed"
log = "{folder}/killed.log"
kill_switch = "{folder}/kill-killed"
"""


TRAINED = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --output={folder}/evaluated.log
echo "iteration       40/     100 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0E+00 |"
(cd {root} && {python} -m tests.lab.checkpoints megatron {folder}/ckpt 40 0 > /dev/null)
echo "saved checkpoint from iteration 40 to {folder}/ckpt"
echo 'Traceback (most recent call last):'
echo '  File "train.py", line 7, in <module>'
echo '    evaluate(model)'
echo '  File "evaluate.py", line 20, in evaluate'
echo 'ValueError: no prediction has an answer'
exit 1
"""

EVALUATOR = """\
#!/bin/bash
#SBATCH --job-name=an-evaluator --output={folder}/eval.log
echo '{{"checkpoint": "'"$1"'", "evaluator": "lab 1", "results": {{"acc": 0.5}}}}' >> {folder}/results.jsonl
"""


@pytest.mark.slow  # it waits for two jobs of Slurm, and for a daemon
def test_of_a_training_whose_evaluator_crashed_only_the_evaluator_is_started_again(
    slurm: Slurm, tmp_path: Path
) -> None:
    folder = slurm.directory / "auto-evaluate"
    folder.mkdir()
    (folder / "results.jsonl").touch()
    (folder / "eval.sbatch").write_text(EVALUATOR.format(folder=folder))
    script = TRAINED.format(folder=folder, root=Path(__file__).parents[2], python=sys.executable)
    job_id = slurm.submit(script, "-J", "evaluated", f"--output={folder}/evaluated.log")
    slurm.wait_for_state(job_id, "FAILED", within=120)
    clock = SetClock(tmp_path)
    clock.ahead(130)  # to the daemon, the job ended more than 121 s ago
    daemon = AlertDaemon(tmp_path, **slurm.environ, **clock.env)
    command = f'[[eval]]\nrun = "evaluated"\nresults = "{folder}/results.jsonl"\n'
    command += f'command = "sbatch {folder}/eval.sbatch {{checkpoint}}"\n'
    watched = (
        CONFIG.format(folder=folder)
        .replace("flaky", "evaluated")
        .replace('kill_switch = "', f'checkpoints = "{folder}/ckpt"\nkill_switch = "', 1)
    )
    daemon.config.write_text(watched + command)
    with contextlib.closing(daemon):
        daemon.start()
        line = daemon.until("auto-requeue", run="evaluated")
        assert line["words"] == "Evaluate the checkpoint of step 40 of evaluated"
        assert line["why"] == "the training is saved: only the evaluator must run again"
        firing = daemon.until("firing", rule="auto-requeue", subject="run:evaluated")
        assert "evaluated was evaluated again automatically" in firing["summary"]
        listed = until_settled(daemon)
    result = json.loads((folder / "results.jsonl").read_text())
    assert result["checkpoint"] == f"{folder}/ckpt/iter_0000040"
    assert (slurm.job(job_id)["Restarts"], slurm.state(job_id)) == ("0", "FAILED")
    assert [(one["verb"], one["who"], one["status"]) for one in listed] == [("evaluate", "auto_requeue", "done")]
    assert [(mark["name"], mark["missed"]) for mark in listed[0]["marks"]] == [
        ("it is in the queue", None), ("a new result of the checkpoint is there", None),
    ]  # fmt: skip


def until_settled(daemon: AlertDaemon) -> list[dict[str, Any]]:
    """The actions in the ledger, once the effects of all of them are known."""
    found: list[dict[str, Any]] = []

    def are_settled() -> bool:
        found[:] = json.loads(daemon.run("actions", "--json").stdout)
        return bool(found) and all(one["settled_at"] is not None for one in found)

    until(are_settled, "the effects of the actions", 120)
    return found


WAITS = """\
#!/bin/bash
#SBATCH --job-name=nodeless --no-requeue --begin=now+1hour --output={folder}/nodeless.log
echo "iteration       40/     100 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0E+00 |"
exec sleep 600
"""


@pytest.mark.slow  # a node is set down, and a new job waits for others
def test_a_job_whose_node_failed_is_queued_anew_and_kept_off_that_node(slurm: Slurm, tmp_path: Path) -> None:
    folder = slurm.directory / "auto-node-fail"
    folder.mkdir()
    script = folder / "train.slurm"
    script.write_text(WAITS.format(folder=folder))
    job_id = slurm.submit(script, "--begin=now", "--nodelist=gpu-1")
    slurm.wait_for_state(job_id, "RUNNING", within=120)
    clock = SetClock(tmp_path)
    daemon = AlertDaemon(tmp_path, **slurm.environ, **clock.env)
    daemon.config.write_text(CONFIG.format(folder=folder).replace("flaky", "nodeless"))
    with contextlib.closing(daemon):
        daemon.start()
        daemon.until("source", source="slurm:lab", health="ok")
        slurm.scontrol("update", "NodeName=gpu-1", "State=DOWN", "Reason=broken")
        slurm.wait_for_state(job_id, "NODE_FAIL", within=120)
        until(lambda: '"node-fail"' in daemon.run("attempts", "--json").stdout, "the cause in the ledger", 120)
        clock.ahead(130)  # to the daemon, the job ended more than 121 s ago
        line = daemon.until("auto-requeue", run="nodeless", words="Queue 1 more job of nodeless")
        assert line["why"].startswith("node-fail on gpu-1: ")
        assert line["why"].endswith("the next attempt must avoid it")
        waiting = ("-h", "--name=nodeless", "--states=PENDING", "--format=%F")
        slurm.wait_for(lambda: slurm.squeue(*waiting), what="it is queued")
        (again,) = slurm.squeue(*waiting).split()  # not job_id + 1: each `sbatch --test-only` takes a number, too
        assert slurm.job(again)["ExcNodeList"] == "gpu-1", "from its first moment: it may start at once"
        assert slurm.state(again) == "PENDING"
        listed = json.loads(daemon.run("actions", "--json").stdout)
    assert [(one["verb"], one["who"]) for one in listed] == [("queue", "auto_requeue")]


STORM = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append
echo "iteration       40/     100 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0E+00 |"
echo "[rank3]:[E1123 01:02:03.4] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, \
OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
exit 1
"""


@pytest.mark.slow  # four attempts of a real job, one after another
def test_a_storm_of_the_same_steps_is_stopped_and_wakes_someone(slurm: Slurm, tmp_path: Path) -> None:
    folder = slurm.directory / "auto-storm"
    folder.mkdir()
    stormy, taken = (slurm.submit(STORM, "-J", name, f"--output={folder}/{name}.log") for name in ("stormy", "taken"))
    for job_id in (stormy, taken):
        slurm.wait_for_state(job_id, "FAILED", within=120)
    act = f"Requeue job {stormy} of stormy, which has ended"
    slurm.scontrol("requeuehold", taken)  # a person, or Slurm, was faster
    clock = SetClock(tmp_path)
    clock.ahead(130)  # to the daemon, the jobs ended more than 121 s ago
    daemon = AlertDaemon(tmp_path, **slurm.environ, **clock.env)
    with contextlib.ExitStack() as stack:
        hook = stack.enter_context(WebhookReceiver.start())
        notify = f'[[notify]]\nname = "hook"\ntype = "webhook"\nurl = "{hook.url}"\n'
        daemon.config.write_text(
            CONFIG.format(folder=folder).replace("flaky", "stormy").replace("killed", "taken") + notify
        )
        stack.enter_context(contextlib.closing(daemon))
        daemon.start()
        for number in (1, 2, 3):
            line = daemon.until("auto-requeue", run="stormy", words=act, count=number)
            doubt = f"; {number} failures are too few to say which node is bad" if number > 1 else ""
            assert line["why"] == f"nccl-timeout is often transient{doubt}"
            run_again(slurm, stormy, number)
        storm = daemon.until("firing", rule="retry-storm", subject="run:stormy", severity="critical")
        assert "stormy repeats the same steps: 3 attempts in" in storm["summary"]
        for summary in (
            "stormy was requeued automatically: nccl-timeout is often transient",
            "stormy is not requeued automatically: nccl-timeout came again 3 times without a new step or checkpoint: "
            "its budget is spent",
        ):
            daemon.until("firing", rule="auto-requeue", subject="run:stormy", summary=summary)
        until(lambda: {"retry-storm", "auto-requeue"} <= told(hook).keys(), "the notifications", 120)
        assert "Watchdog caught collective operation timeout" in told(hook)["auto-requeue"]
        assert "critical" in told(hook)["retry-storm"]
    assert len(daemon.lines(event="auto-requeue", run="stormy", words=act)) == 3
    assert daemon.lines(event="auto-requeue", run="taken") == []
    assert (slurm.job(stormy)["Restarts"], slurm.job(taken)["Restarts"]) == ("3", "1")


def run_again(slurm: Slurm, job_id: str, restarts: int) -> None:
    """Wait until a job was requeued, and let it fail once more."""
    slurm.wait_for(lambda: slurm.job(job_id)["Restarts"] == str(restarts), what="the job was requeued")
    slurm.start_again(job_id)
    slurm.wait_for_state(job_id, "FAILED", within=120)


def told(hook: WebhookReceiver) -> dict[str, str]:
    """The first notification of each rule, as text."""
    found: dict[str, str] = {}
    for message in hook.messages:
        for alert in message["alerts"]:
            found.setdefault(alert["labels"]["alertname"], json.dumps(alert))
    return found


@pytest.mark.slow  # Slurm's shortest time limit is a minute, and it looks at limits every half minute
def test_a_job_that_reached_its_time_limit_is_requeued_automatically(slurm: Slurm, tmp_path: Path) -> None:
    folder = slurm.directory / "auto-requeue-time-limit"
    folder.mkdir()
    script = "#!/bin/bash\n#SBATCH --requeue --time=1\nexec sleep 600"
    job_id = slurm.submit(script, "-J", "limited", f"--output={folder}/limited.log")
    slurm.wait_for_state(job_id, "TIMEOUT", within=300)
    clock = SetClock(tmp_path)
    clock.ahead(130)  # to the daemon, the job ended more than 121 s ago
    daemon = AlertDaemon(tmp_path, **slurm.environ, **clock.env)
    daemon.config.write_text(CONFIG.format(folder=folder).replace("flaky", "limited"))
    with contextlib.closing(daemon):
        daemon.start()
        line = daemon.until("auto-requeue", run="limited")
        assert line["words"] == f"Requeue job {job_id} of limited, which has ended"
        assert line["why"].startswith("time-limit: ")
        slurm.wait_for(lambda: slurm.job(job_id)["Restarts"] == "1", what="the job was requeued")
        assert slurm.state(job_id) == "PENDING"


OOM = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append
echo "iteration        1/     100 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0E+00 |"
until [ -e {folder}/go ]; do sleep 0.2; done
echo 'Traceback (most recent call last):'
echo '  File "train.py", line 88, in training_step'
echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'
exit 1
"""


@pytest.mark.slow  # the daemon tries every half minute
def test_after_an_oom_a_job_is_requeued_once_its_config_has_changed(slurm: Slurm, tmp_path: Path) -> None:
    folder = slurm.directory / "auto-oom"
    folder.mkdir()
    config = folder / "greedy.yaml"
    config.write_text("batch: 8\nlr: 1.0e-4\n")
    clock = SetClock(tmp_path)
    daemon = AlertDaemon(tmp_path, **slurm.environ, **clock.env)
    watched = CONFIG.format(folder=folder).replace("flaky", "greedy")
    daemon.config.write_text(watched.replace("kill_switch", f'config = "{config}"\nkill_switch', 1))

    def attempt(field: str) -> Any:
        rows = json.loads(daemon.run("attempts", "greedy", "--json").stdout)
        return rows[0][field] if rows else None

    with contextlib.closing(daemon):
        daemon.start()
        daemon.until("source", source="slurm:lab", health="ok")
        job_id = slurm.submit(OOM.format(folder=folder), "-J", "greedy", f"--output={folder}/greedy.log")
        until(lambda: attempt("config_hash") is not None, "the config that the attempt began with", 120)
        before = attempt("config_hash")
        (folder / "go").touch()
        slurm.wait_for_state(job_id, "FAILED", within=120)
        until(lambda: attempt("termination_reason") == "cuda-oom", "the cause", 120)
        clock.ahead(130)  # to the daemon, the job ended more than 121 s ago
        same = f"nothing has changed since the attempt (config {before}): the same cuda-oom would come again"
        daemon.until("auto-requeue", run="greedy", words=f"not done: {same}")
        assert slurm.job(job_id)["Restarts"] == "0"
        config.write_text("batch: 4\nlr: 1.0e-4\n")
        line = daemon.until("auto-requeue", run="greedy", words=f"Requeue job {job_id} of greedy, which has ended")
        assert line["why"].startswith(f"the config has changed since the attempt ({before} → ")
        slurm.wait_for(lambda: slurm.job(job_id)["Restarts"] == "1", what="the job was requeued")
        listed = json.loads(daemon.run("actions", "--json").stdout)
    assert [(one["verb"], one["who"], one["why"]) for one in listed] == [("requeue", "auto_requeue", line["why"])]


def test_a_job_that_fails_twice_is_requeued_once_and_an_armed_kill_switch_stops_it(
    slurm: Slurm, tmp_path: Path
) -> None:
    folder = slurm.directory / "auto-requeue"
    folder.mkdir()
    (folder / "kill-killed").touch()
    flaky, killed = (
        slurm.submit(SCRIPT.format(folder=folder, name=name), "-J", name, f"--output={folder}/{name}.log")
        for name in ("flaky", "killed")
    )
    for job_id in (flaky, killed):
        slurm.wait_for_state(job_id, "FAILED")
    clock = SetClock(tmp_path)
    clock.ahead(130)  # to the daemon, the jobs ended more than 121 s ago
    daemon = AlertDaemon(tmp_path, **slurm.environ, **clock.env)
    once = CONFIG.replace('auto_requeue = "on"', 'auto_requeue = "on"\nnccl-timeout = 1')
    daemon.config.write_text(once.format(folder=folder))
    with contextlib.closing(daemon):
        daemon.start()
        line = daemon.until("auto-requeue", run="flaky")
        assert line["words"] == f"Requeue job {flaky} of flaky, which has ended"
        run_again(slurm, flaky, 1)
        alert = daemon.until("firing", rule="auto-requeue", subject="run:flaky", count=2)
        assert "flaky is not requeued automatically" in alert["summary"]
        assert "its budget is spent" in alert["summary"]
    assert (slurm.job(flaky)["Restarts"], slurm.job(killed)["Restarts"]) == ("1", "0")
    assert daemon.lines(event="auto-requeue", run="killed") == []
    plan = daemon.run("queue", "flaky", "--dry-run", f"--config={daemon.config}").stdout
    assert "retry budget       retries used after nccl-timeout: 1 of 1" in plan
    assert "last causes        nccl-timeout (2 times)" in plan
    listed = daemon.run("actions", "--json").stdout
    assert [(one["verb"], one["who"], one["status"]) for one in json.loads(listed)] == [
        ("requeue", "auto_requeue", "done"),
    ]  # fmt: skip


SURVIVES = """\
#!/bin/bash
#SBATCH --job-name=survives --no-requeue --nodelist=gpu-1 --output={folder}/survives.log
step=0
until [ -e {folder}/stop ]; do
    step=$((step + 1))
    printf 'iteration %8d/    5000 | elapsed time per iteration (ms): 1000.0 | lm loss: 2.0E+00 |\\n' $step
    sleep 1
done
"""


@pytest.mark.slow  # a trainer must go on for half a minute after the end of its job
def test_beside_a_trainer_that_survives_its_slurmd_nothing_is_started(slurm: Slurm, tmp_path: Path) -> None:
    folder = slurm.directory / "auto-survives"
    folder.mkdir()
    script = folder / "train.slurm"
    script.write_text(SURVIVES.format(folder=folder))
    job_id = slurm.submit(script, f"--output={folder}/survives.log")
    slurm.wait_for_state(job_id, "RUNNING", within=120)
    daemon = AlertDaemon(tmp_path, **slurm.environ)
    daemon.config.write_text(CONFIG.format(folder=folder).replace("flaky", "survives"))
    with contextlib.closing(daemon):
        daemon.start()
        until(lambda: (folder / "survives.log").read_text().count("iteration") > 5, "it trains", 120)
        daemon.until("source", source="slurm:lab", health="ok")
        slurm.lose("gpu-1")
        try:
            slurm.wait_for_state(job_id, "NODE_FAIL", within=120)
            daemon.until("firing", rule="run-dead", subject="run:survives")
            line = daemon.until("firing", rule="second-trainer", subject="run:survives", severity="critical")
            assert f"trainer outlived its job {job_id} (NODE_FAIL, " in line["summary"]
            assert daemon.lines(event="resolved", rule="run-dead", subject="run:survives") == []
            done = daemon.run("queue", "survives", "--yes", f"--config={daemon.config}")
            assert (done.returncode, "outlived its job" in done.stdout + done.stderr) == (4, True), done
            typed = daemon.run("queue", "survives", "--yes", "--typed", job_id, f"--config={daemon.config}")
            assert typed.returncode == 0, typed.stdout + typed.stderr
        finally:
            (folder / "stop").touch()
            slurm.find("gpu-1")
    assert daemon.lines(event="auto-requeue", run="survives") == []
