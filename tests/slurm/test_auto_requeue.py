"""The daemon requeues a real job that fails: within its budget, and not while a kill switch is armed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tests.alerts.daemon import AlertDaemon
from tests.lab.clock import SetClock
from tests.lab.slurm import Slurm

SCRIPT = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --output={folder}/{name}.log
echo "iteration        1/     100 | elapsed time per iteration (ms): 100.0 | lm loss: 2.0E+00 |"
echo 'Traceback (most recent call last):'
echo '  File "train.py", line 7, in <module>'
echo 'ValueError: heads must divide the width'
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


@pytest.mark.slow  # Slurm's shortest time limit is a minute, and it looks at limits every half minute
def test_a_job_that_reached_its_time_limit_is_requeued_automatically(slurm: Slurm, tmp_path: Path) -> None:
    folder = slurm.directory / "auto-requeue-time-limit"
    folder.mkdir()
    script = f"#!/bin/bash\n#SBATCH --requeue --time=1 --output={folder}/flaky.log\nexec sleep 600"
    job_id = slurm.submit(script, "-J", "flaky")
    slurm.wait_for_state(job_id, "TIMEOUT", within=300)
    clock = SetClock(tmp_path)
    clock.ahead(130)  # to the daemon, the job ended more than 121 s ago
    daemon = AlertDaemon(tmp_path, **slurm.environ, **clock.env)
    daemon.config.write_text(CONFIG.format(folder=folder))
    with contextlib.closing(daemon):
        daemon.start()
        line = daemon.until("auto-requeue", run="flaky")
        assert line["words"] == f"Requeue job {job_id} of flaky, which has ended"
        assert line["why"].startswith("time-limit: ")
        slurm.wait_for(lambda: slurm.job(job_id)["Restarts"] == "1", what="the job was requeued")
        assert slurm.state(job_id) == "PENDING"


def test_a_job_that_fails_twice_is_requeued_once_and_an_armed_kill_switch_stops_it(
    slurm: Slurm, tmp_path: Path
) -> None:
    folder = slurm.directory / "auto-requeue"
    folder.mkdir()
    (folder / "kill-killed").touch()
    flaky, killed = (slurm.submit(SCRIPT.format(folder=folder, name=name), "-J", name) for name in ("flaky", "killed"))
    for job_id in (flaky, killed):
        slurm.wait_for_state(job_id, "FAILED")
    clock = SetClock(tmp_path)
    clock.ahead(130)  # to the daemon, the jobs ended more than 121 s ago
    daemon = AlertDaemon(tmp_path, **slurm.environ, **clock.env)
    daemon.config.write_text(CONFIG.format(folder=folder))
    with contextlib.closing(daemon):
        daemon.start()
        line = daemon.until("auto-requeue", run="flaky")
        assert line["words"] == f"Requeue job {flaky} of flaky, which has ended"
        slurm.wait_for(lambda: slurm.job(flaky)["Restarts"] == "1", what="the job was requeued")
        slurm.ask("scontrol", "update", f"JobId={flaky}", "StartTime=now")
        slurm.wait_for_state(flaky, "FAILED")
        alert = daemon.until("firing", rule="auto-requeue", subject="run:flaky", count=2)
        assert "flaky is not requeued automatically" in alert["summary"]
        assert "its budget is spent" in alert["summary"]
    assert (slurm.job(flaky)["Restarts"], slurm.job(killed)["Restarts"]) == ("1", "0")
    assert daemon.lines(event="auto-requeue", run="killed") == []
    plan = daemon.run("queue", "flaky", "--dry-run", f"--config={daemon.config}").stdout
    assert "retry budget       1 of 1 retries spent after python-exception" in plan
    assert "last causes        python-exception (2 times)" in plan
    listed = daemon.run("actions", "--json").stdout
    assert [(one["verb"], one["who"], one["status"]) for one in json.loads(listed)] == [
        ("requeue", "auto_requeue", "done"),
    ]  # fmt: skip
