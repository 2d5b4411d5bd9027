"""trainmon_hooks in two ranks of PyTorch on the real Slurm: switches and signals save and stop both of them."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from tests.lab.slurm import Slurm
from tests.lab.torchrun import torch_python
from tests.slurm.conftest import NUMBERS
from tests.slurm.product import SlurmProduct
from tests.slurm.test_keys import agree
from trainmon import job
from trainmon.ledger.ledger import recent_actions

pytestmark = pytest.mark.slow  # PyTorch is a download of many hundred megabytes

PATIENCE = 120.0

TRAINER = """\
import os, pathlib, sys, time
import torch
import torch.distributed as dist
from trainmon_hooks import Hooks

folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["SLURM_PROCID"])
hooks = Hooks.from_env(print_every=1, nan="stop", nan_after=2)
if hooks.stop_at_start():
    print(f"rank {rank} stops at the start", flush=True)
    sys.exit(0)
attempt = "%s-%s" % (os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_RESTART_COUNT", "0"))
dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{attempt}", rank=rank, world_size=2)
model, pointer = torch.nn.Linear(4, 1), folder / "checkpoints" / "latest_checkpointed_iteration.txt"
start = 0
if pointer.exists():
    start = int(pointer.read_text())
    model.load_state_dict(torch.load(pointer.parent / f"iter_{start:07}" / "mp_rank_00" / "model_optim_rng.pt"))
print(f"rank {rank} begins after step {start}", flush=True)
(folder / f"pid-{rank}").write_text(str(os.getpid()))


def save(step):
    if rank == 0:
        place = pointer.parent / f"iter_{step:07}" / "mp_rank_00"
        place.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), place / "model_optim_rng.pt")
        pointer.with_suffix(".new").write_text(str(step))
        pointer.with_suffix(".new").replace(pointer)
    dist.barrier()
    print(f"rank {rank} saved step {step}: {hooks.why}", flush=True)


for step in range(start + 1, 100_000):
    time.sleep(0.1)
    loss = model(torch.ones(4)).square().mean()
    if rank == 1 and (folder / "nan").exists():
        loss = loss * float("nan")
    dist.all_reduce(torch.zeros(1))  # as the gradients do: a rank that is left alone hangs here
    ask = hooks.step(step, loss)
    if ask:
        save(step)
        hooks.saved(step)
    if ask == "stop":
        break
hooks.done(step)
print(f"rank {rank} ends at step {step}", flush=True)
"""

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name} --nodes=2 --ntasks=2 --requeue --open-mode=append --output={folder}/log
export TRAINMON_KILL={folder}/kill TRAINMON_SAVE={folder}/save
exec srun {python} {folder}/train.py {folder}
"""


class TwoRanks:
    """A training of two ranks, and the product that watches it."""

    def __init__(self, slurm: Slurm, product: SlurmProduct, name: str) -> None:
        self.slurm, self.product, self.name = slurm, product, name
        self.folder = slurm.directory / name
        (self.folder / "checkpoints").mkdir(parents=True)
        (self.folder / "trainmon_hooks.py").write_text(job.hooks_module())
        (self.folder / "train.py").write_text(TRAINER)
        self.script = self.folder / "train.slurm"
        self.script.write_text(SCRIPT.format(name=name, folder=self.folder, python=torch_python()))
        product.watch(
            '[[cluster]]\nname = "lab"\nevery = "1s"\nslurm_every = "15s"\n'
            f'[[run]]\nname = "{name}"\ncluster = "lab"\njob = "{name}"\nlog = "{self.folder}/log"\n'
            f'checkpoints = "{self.folder}/checkpoints"\nscript = "{self.script}"\n'
            f'kill_switch = "{self.folder}/kill"\nsave_switch = "{self.folder}/save"\n'
        )

    def submit(self, *options: str) -> str:
        return self.slurm.ask("sbatch", "--parsable", *options, str(self.script)).strip()

    def log(self) -> str:
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    def until_steps(self, times: int = 1) -> None:
        """Until it has begun this often, and has made steps since."""
        since = "rank 0 begins after step"
        self.slurm.wait_for(
            lambda: self.log().count(since) == times and "step: " in self.log().rpartition(since)[2],
            PATIENCE,
            "it makes steps",
        )

    def saves(self) -> dict[int, list[str]]:
        """Step → the ranks that saved it, with the reason."""
        found: dict[int, list[str]] = {}
        for rank, step, why in re.findall(r"rank (\d) saved step (\d+): (.*)", self.log()):
            found.setdefault(int(step), []).append(f"{rank} {why}")
        return found

    def until_saved(self, count: int, why: str) -> int:
        """Until both ranks have saved for the count-th time, for the same reason, which matches; the step."""

        def are_done() -> bool:
            return len(self.saves()) == count and all(len(one) == 2 for one in self.saves().values())

        self.slurm.wait_for(are_done, PATIENCE, f"both ranks have saved {count} times")
        step = max(self.saves())
        first, second = (one[2:] for one in self.saves()[step])
        assert first == second
        assert re.fullmatch(why, first)
        assert (self.folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == str(step)
        return step

    def status(self) -> dict[str, object]:
        known: dict[str, object] = json.loads((self.folder / "kill.status").read_text())
        return known

    def reached(self) -> list[str]:
        """What was seen to follow the newest action, as the ledger has it."""
        ledger = self.product.home / ".local" / "state" / "trainmon-tui"
        *_, newest = recent_actions(ledger, 0.0, 100)
        return [mark.name for mark in newest.marks if mark.at is not None]

    def act(self, *words: str) -> str:
        """A verb of the product; what it says until its effect has come."""
        done = self.product.run(*words, "--yes", "--wait=110s", timeout=200.0)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def two_ranks(slurm: Slurm, product: SlurmProduct) -> TwoRanks:
    return TwoRanks(slurm, product, f"hooked-{next(NUMBERS)}")


def test_switches_and_signals_are_obeyed_by_both_ranks_and_nothing_is_lost(two_ranks: TwoRanks, slurm: Slurm) -> None:
    job_id = two_ranks.submit()
    two_ranks.until_steps()

    said = two_ranks.act("save", two_ranks.name)
    two_ranks.until_saved(1, "save: the save switch")
    assert not (two_ranks.folder / "save").exists()
    assert "yes: it reported" in said
    assert "the trainer consumes it" in said
    assert "a new checkpoint is committed" in said

    said = two_ranks.act("signal", two_ranks.name, "USR1", "--typed", job_id)
    step = two_ranks.until_saved(2, r"save: SIGUSR1 on rank \d")
    assert "USR1 asks it to save" in said
    assert re.search("The trainer saves at its next iteration.*; training goes on", said)
    assert "the training loop obeys" in said
    assert "a new checkpoint is committed" in said
    slurm.wait_for(lambda: f"step: {step + 1} " in two_ranks.log(), PATIENCE, "it trains on")

    os.kill(int((two_ranks.folder / "pid-1").read_text()), signal.SIGUSR1)
    two_ranks.until_saved(3, "save: SIGUSR1 on rank 1")

    dashboard = two_ranks.product.dashboard(columns=120, rows=80)
    dashboard.until_shown(rf"{two_ranks.name}: healthy", seconds=PATIENCE)
    agree(dashboard, "R", "SIGTERM, on which its trainer saves", button="▲ Requeue")
    last = two_ranks.until_saved(4, r"stop: SIGTERM on rank \d")
    slurm.wait_for(lambda: "it is pending again" in two_ranks.reached(), PATIENCE, "the product sees that it waits")
    slurm.start_again(job_id)
    two_ranks.until_steps(2)
    before, _, after = two_ranks.log().rpartition("rank 0 begins after")
    assert max(map(int, re.findall(r"^step: (\d+) ", before, re.MULTILINE))) == last
    assert after.startswith(f" step {last}\n"), "0 steps are lost"
    assert slurm.job(job_id)["Restarts"] == "1"
    dashboard.keys("\r")
    outcome = ["the training loop obeys", "it is pending again", "it starts anew", "it resumes with 0 steps lost"]
    dashboard.until_shown("recent actions", *(f"✓ {line} after" for line in outcome), seconds=PATIENCE)
    dashboard.keys("\x1b")

    dashboard.until_shown(rf"{two_ranks.name}: healthy", seconds=PATIENCE)
    agree(dashboard, "K", "yes: it reported", button="▲ Kill")
    two_ranks.until_saved(5, "stop: the kill switch")
    dashboard.keys("\r")
    dashboard.until_shown("recent actions", "✓ the trainer saves after", "✓ it exits after", seconds=PATIENCE)
    slurm.wait_for_state(job_id, "COMPLETED", within=PATIENCE)
    assert slurm.job(job_id)["ExitCode"] == "0:0"


def test_a_kill_switch_ends_the_running_task_of_an_array_and_each_queued_one_at_once(
    two_ranks: TwoRanks, slurm: Slurm
) -> None:
    array = two_ranks.submit("--array=0-3%1")
    two_ranks.until_steps()
    said = two_ranks.act("kill", two_ranks.name)
    two_ranks.until_saved(1, "stop: the kill switch")
    assert "it also ends the 3 pending jobs and array tasks" in said
    assert "the trainer saves" in said
    assert "it exits" in said
    tasks = [f"{array}_{number}" for number in range(4)]
    for task in tasks:
        slurm.wait_for_state(task, "COMPLETED", within=PATIENCE)
    assert [slurm.job(task)["ExitCode"] for task in tasks] == ["0:0"] * 4
    assert two_ranks.log().count("stops at the start") == 3 * 2
    assert two_ranks.log().count("begins after step") == 2
    assert len(two_ranks.saves()) == 1
    assert (two_ranks.folder / "kill").exists()


def test_a_nan_on_one_rank_stops_both_at_the_same_step(two_ranks: TwoRanks, slurm: Slurm) -> None:
    job_id = two_ranks.submit()
    two_ranks.until_steps()
    (two_ranks.folder / "nan").touch()
    slurm.wait_for_state(job_id, "COMPLETED", within=PATIENCE)
    two_ranks.until_saved(1, "stop: a loss that is not finite")
    assert len(set(re.findall(r"ends at step \d+", two_ranks.log()))) == 1
