"""Whether the signal for a batch shell reaches the trainer."""

from __future__ import annotations

import pytest

from trainmon.slurm.batch_script import UnheardSignal, unheard_signal

NEVER = (
    "--signal=B:USR1@600 reaches only the batch shell, never the trainer: the script neither starts it with exec nor "
    "has a trap for USR1"
)
EXEC = "start the trainer with exec, as in: exec trainmon-run -- …"
STEPS = "remove the B: so that Slurm signals the steps of srun, or "
LATE = (
    "--signal=B:USR1@600: the shell runs its trap for USR1 only after its command has ended: the script does not wait "
    "for a command in the background"
)


def script(body: str, options: str = "--signal=B:USR1@600", shell: str = "#!/bin/bash") -> str:
    return f"{shell}\n#SBATCH --output=%j.out {options}  # ten minutes\n#SBATCH -J 'my run'\n\n{body}\n"


def submitted(option: str) -> str:
    return f"JobId=88 JobName=llm Command=/fsx/train.sh SubmitLine=sbatch {option} /fsx/train.sh WorkDir=/fsx\n"


@pytest.mark.parametrize(
    "body",
    [
        "trainmon-run -- python train.py",
        "exec > train.log 2>&1\nexec 3<&0\ntrainmon-run -- python train.py",
        "# trap 'save' USR1\ntrainmon-run -- python train.py  # not exec trainmon-run",
        "trap 'rm -rf $TMPDIR' EXIT\npython train.py",
        "trap 'touch stop' TERM SIGUSR2\npython train.py & wait",
    ],
)
def test_a_signal_for_the_shell_alone_never_reaches_the_trainer(body: str) -> None:
    assert unheard_signal(script(body)) == UnheardSignal(NEVER, EXEC)


def test_slurm_can_signal_the_steps_instead() -> None:
    assert unheard_signal(script("srun trainmon-run -- python train.py")) == UnheardSignal(NEVER, STEPS + EXEC)


@pytest.mark.parametrize(
    "body",
    [
        "exec trainmon-run -- python train.py",
        "cd /fsx && exec srun python train.py",
        "if test -e go; then exec python train.py; fi",
        "trap 'kill -USR1 $pid' USR1\nsrun python train.py &\npid=$!\nwait $pid",
        'trap "echo \\"saving\\"\nscancel -s USR1 $SLURM_JOB_ID" SIGUSR1 TERM\nsrun python train.py & wait',
        "save() { touch save; }\ntrap save 10\npython train.py & wait",
    ],
)
def test_a_script_that_becomes_the_trainer_or_passes_the_signal_on_is_right(body: str) -> None:
    assert unheard_signal(script(body)) is None


def test_a_trap_is_run_only_after_the_command_in_the_foreground() -> None:
    body = "trap 'scancel -s USR1 $SLURM_JOB_ID' USR1\nsrun python train.py"
    assert unheard_signal(script(body)) == UnheardSignal(LATE, "start the trainer in the background: srun … & wait")


@pytest.mark.parametrize("options", ["", "--signal=USR1@600", "--signal USR1", "--signal=R:USR1@60"])
def test_only_signals_for_the_shell_alone_are_looked_at(options: str) -> None:
    assert unheard_signal(script("python train.py", options)) is None


@pytest.mark.parametrize("option", ["--signal B:10@600", "--signal=b:sigusr1@600", "--signal=RB:USR1"])
def test_all_spellings_of_the_option_are_known(option: str) -> None:
    found = unheard_signal(script("python train.py", option))
    assert found is not None
    assert found.text.endswith("nor has a trap for USR1")


def test_the_line_that_submitted_it_counts_more_than_the_script() -> None:
    assert unheard_signal(script("python train.py"), submitted("--signal=USR1@60")) is None
    found = unheard_signal(script("python train.py", ""), submitted("--signal=B:USR1@600"))
    assert found == UnheardSignal(NEVER, EXEC)


def test_directives_after_the_first_command_are_comments() -> None:
    assert unheard_signal("#!/bin/bash\ndate\n#SBATCH --signal=B:USR1\npython train.py\n") is None


def test_a_script_that_is_no_shell_gets_the_signal_itself() -> None:
    assert unheard_signal(script("main()", shell="#!/usr/bin/env python3")) is None
    assert unheard_signal(script("python train.py", shell="#!/usr/bin/env -S bash")) is not None
