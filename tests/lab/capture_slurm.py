"""Writes what this machine's Slurm prints into tests/captured/slurm-22.05/: python -m tests.lab.capture_slurm

One file an answer: NAME.txt is standard output, NAME.err standard error where there was any; commands.txt has the
commands and their exit statuses. Takes two minutes, as a time limit is a minute at least.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.lab.slurm import OTHER, Slurm
from trainmon.slurm import commands

PLACE = Path("/tmp/lab")
"""Its name is in what is captured."""

CAPTURED = Path(__file__).parent.parent / "captured" / "slurm-22.05"
QUEUE = "%A|#%i|#%F|#%K|#%T|#%r|#%M|#%l|#%L|#%S|#%e|#%V|#%D|#%P|#%a|#%q|#%N|#%Q|#%u|#%E|#%Z|#%j"
"""Another format than ours: what a reader of `|#` would get."""

EXACT = ("env", "SLURM_TIME_FORMAT=standard", "SLURM_BITSTR_LEN=0")
GPUS = "--gres=gpu:8"
EVERYONE = ("root", OTHER)


class Capture:
    """Asks and writes down."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm = slurm
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def ask(self, name: str, *argv: str, user: str | None = None, timeout: float = 120.0) -> None:
        try:
            done = self.slurm.run(*EXACT, *argv, user=user, timeout=timeout)
        except subprocess.TimeoutExpired:
            self._note(name, argv, user, f"no answer in {timeout:g} s")
            return
        (self.folder / f"{name}.txt").write_text(done.stdout)
        if done.stderr:
            (self.folder / f"{name}.err").write_text(done.stderr)
        self._note(name, argv, user, str(done.returncode))

    def _note(self, name: str, argv: tuple[str, ...], user: str | None, end: str) -> None:
        with (self.folder / "commands.txt").open("a") as file:
            file.write(f"{name}: {shlex.join(argv)}{f' (as {user})' if user else ''} -> {end}\n")


@contextlib.contextmanager
def slurm_in_place(*, accounting: bool) -> Iterator[Slurm]:
    shutil.rmtree(PLACE, ignore_errors=True)
    with Slurm.start(PLACE, accounting=accounting) as slurm:
        yield slurm
    shutil.rmtree(PLACE, ignore_errors=True)


def ended_jobs(slurm: Slurm) -> dict[str, str]:
    """One for each way to end, and one whose time limit comes in a minute or two."""
    job = {
        "timeout": slurm.submit("sleep 600", "-J", "too-long", "--time=1"),
        "completed": slurm.submit("true", "-J", "fine"),
        "failed": slurm.submit("exit 3", "-J", "exit-3"),
        "killed": slurm.submit("kill -9 $$", "-J", "kill-9"),
        "cancelled": slurm.submit("sleep 600", "-J", "cancelled"),
        "lost": slurm.submit("sleep 600", GPUS, "-w", "gpu-3", "-J", "on-a-dying-node", "--no-requeue"),
    }
    for name in ("lost", "cancelled"):
        slurm.wait_for_state(job[name], "RUNNING")
    slurm.lose("gpu-3")
    slurm.find("gpu-3")
    slurm.ask("scancel", job["cancelled"])
    slurm.wait_for_state(job["killed"], "FAILED")
    slurm.wait_for(lambda: slurm.node("gpu-3") == "idle", what="gpu-3 is back")
    return job


def running_jobs(slurm: Slurm) -> dict[str, str]:
    job = {
        "running": slurm.submit(
            "srun sleep 600 &\nwait", "-N2", "-w", "gpu-[1-2]", GPUS, "-J", "video-2b", "--comment=second try",
            "--signal=B:USR1@600", "--open-mode=append", "--time=1-02:00:00",
        ),
        "array": slurm.submit("sleep 600", "--array=2-10%1", "-J", "arr", "-o", f"{PLACE}/log/%A_%a.log", GPUS),
        "other": slurm.submit("sleep 600", "-J", "other's", user=OTHER),
        "requeued": slurm.submit("sleep 600", "-J", "requeued"),
        "nasty": slurm.submit("sleep 600", "-J", "a|b #c |# d\ne $(id) 'f' [red]ü\x1b[31m" + "x" * 60),
    }  # fmt: skip
    for name, number in job.items():
        slurm.wait_for_state(f"{number}_2" if name == "array" else number, "RUNNING")
    slurm.scontrol("requeue", "Incomplete", job["requeued"])
    return job


def waiting_jobs(slurm: Slurm, before: dict[str, str]) -> dict[str, str]:
    job = {
        "held": slurm.submit("sleep 600", "-J", "held-by-me", "--hold", user=OTHER),
        "held-by-admin": slurm.submit("sleep 600", "-J", "held-by-admin", "--begin=now+1hour", user=OTHER),
        "queued": slurm.submit("sleep 600", f"--dependency=afterany:{before['running']}", "-J", "video-2b"),
        "never": slurm.submit("true", f"--dependency=afterok:{before['failed']}", "-J", "never"),
        "resources": slurm.submit("sleep 600", "-N3", GPUS, "--exclude=gpu-4", "-J", "big"),
        "later": slurm.submit("true", "--begin=now+1hour", "-J", "later", "--no-requeue"),
    }
    slurm.scontrol("hold", job["held-by-admin"])
    return job


def ask_of_jobs(capture: Capture, job: dict[str, str]) -> None:
    capture.ask("queue", *commands.queue(EVERYONE))
    capture.ask("queue-me", *commands.queue())
    capture.ask("queue-other-format", "squeue", "-h", "-u", "root,nobody", "--states=all", "-o", QUEUE)
    capture.ask("queue-as-a-person", "squeue", "--states=all")
    for name, number in job.items():
        capture.ask(f"job-{name}", *commands.show_job(number))
    capture.ask("job-array-element", *commands.show_job(f"{job['array']}_2"))
    capture.ask("job-unknown", *commands.show_job("987654"))
    capture.ask("queue-unknown", "squeue", "-h", "-j", "987654")
    for name in ("running", "array", "nasty", "completed"):
        capture.ask(f"steps-{name}", *commands.steps(job[name]))


def ask_of_nodes(capture: Capture) -> None:
    slurm = capture.slurm
    slurm.drain("gpu-1", "NHC: nv_health: GPU 3 has 12 pending page retirements; ask <ops> [red]")
    slurm.count_gpus("gpu-4", 7)
    slurm.wait_for(lambda: slurm.node("gpu-4").startswith(("inval", "drain")), what="the lost GPU is seen")
    capture.ask("nodes-lost-gpu", *commands.nodes())
    slurm.count_gpus("gpu-4", 8)
    slurm.wait_for(lambda: slurm.node("gpu-4").startswith("drain"), what="gpu-4 is drained")
    slurm.scontrol("update", "nodename=gpu-3", "state=down", "reason=Kill task failed")
    capture.ask("nodes", *commands.nodes())
    capture.ask("nodes-named", *commands.nodes(("gpu-1", "gpu-4")))
    capture.ask("nodes-unknown", *commands.nodes(("gpu-77",)))
    capture.ask("nodes-as-a-person", "sinfo", "-N", "-l")
    capture.ask("node", "scontrol", "show", "node", "-o", "gpu-1")


def ask_what_is_refused(capture: Capture, job: dict[str, str]) -> None:
    capture.ask("requeue-waiting", *commands.requeue(job["requeued"]))
    capture.ask("requeue-completed", *commands.requeue(job["completed"]))
    capture.ask("requeue-unknown", *commands.requeue("987654"))
    capture.ask("requeue-never", *commands.requeue(job["later"]))
    capture.ask("requeue-denied", *commands.requeue(job["running"]), user=OTHER)
    capture.ask("cancel-completed", *commands.cancel(job["completed"]))
    capture.ask("cancel-unknown", *commands.cancel("987654"))
    capture.ask("cancel-denied", *commands.cancel(job["running"]), user=OTHER)
    capture.ask("hold-denied", *commands.hold(job["running"]), user=OTHER)
    capture.ask("release-held-by-admin", *commands.release(job["held-by-admin"]), user=OTHER)
    capture.ask("signal-completed", *commands.signal(job["completed"], "USR1", batch=True))
    capture.ask("signal-waiting", *commands.signal(job["later"], "USR1", batch=True))
    capture.ask("exclude-waiting", *commands.exclude(job["later"], ("gpu-1", "gpu-2")))
    capture.ask("exclude-running", *commands.exclude(job["running"], ("gpu-1",)))
    capture.ask("exclude-unknown-node", *commands.exclude(job["later"], ("gpu-77",)))
    capture.ask("drain-denied", *commands.drain("gpu-2", "a test"), user=OTHER)
    capture.ask("submit-no-script", *commands.submit(1, None, None, "/nowhere/train.sh"))
    capture.ask("submit-bad-dependency", *commands.submit(1, "987654", None, str(PLACE / "scripts" / "script-1.sh")))
    capture.ask("may-operate", *commands.may_operate("root"))
    capture.ask("may-operate-other", *commands.may_operate(OTHER), user=OTHER)


def ask_of_the_past(capture: Capture, job: dict[str, str]) -> None:
    slurm = capture.slurm
    slurm.wait_for_state(job["timeout"], "TIMEOUT", within=200)
    capture.ask("job-timed-out", *commands.show_job(job["timeout"]))
    capture.ask("accounting", *commands.accounting(tuple(job.values())))
    capture.ask("accounting-unknown", *commands.accounting(("987654",)))


def ask_when_it_is_silent(capture: Capture) -> None:
    slurm = capture.slurm
    slurm.stop_munge()
    capture.ask("queue-without-munge", *commands.queue(EVERYONE))
    slurm.start_munge()
    slurm.freeze_controller()
    capture.ask("queue-frozen", *commands.queue(EVERYONE), timeout=25)
    slurm.thaw_controller()
    slurm.stop_controller()
    capture.ask("queue-stopped", *commands.queue(EVERYONE))
    capture.ask("job-stopped", *commands.show_job("1"))
    capture.ask("nodes-stopped", *commands.nodes())
    capture.ask("ping-stopped", "scontrol", "ping")
    capture.ask("requeue-stopped", *commands.requeue("1"))
    capture.ask("cancel-stopped", *commands.cancel("1"))
    slurm.start_controller()
    assert slurm.accounting is not None
    slurm.accounting.stop_slurmdbd()
    capture.ask("accounting-stopped", *commands.accounting(("1",)))


def capture_all(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with slurm_in_place(accounting=True) as slurm:
        capture = Capture(slurm, folder)
        job = ended_jobs(slurm)
        job |= running_jobs(slurm)
        job |= waiting_jobs(slurm, job)
        ask_of_jobs(capture, job)
        ask_what_is_refused(capture, job)
        ask_of_nodes(capture)
        capture.ask("version", "scontrol", "--version")
        capture.ask("ping", "scontrol", "ping")
        capture.ask("configuration", *commands.configuration())
        ask_of_the_past(capture, job)
        ask_when_it_is_silent(capture)
    with slurm_in_place(accounting=False) as slurm:
        capture = Capture(slurm, folder)
        capture.ask("queue-empty", *commands.queue())
        capture.ask("accounting-off", *commands.accounting(("1",)))
        capture.ask("configuration-no-accounting", *commands.configuration())
        capture.ask("may-operate-no-accounting", *commands.may_operate("root"))


if __name__ == "__main__":
    capture_all(CAPTURED)
