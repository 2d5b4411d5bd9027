"""All verbs, in one table. The keys, the menu, the palette, the commands, the plans and their verification read it.

The command line imports this module for `--help`: the functions of a verb are named, and imported at their first use.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from trainmon.lib import Means, Seconds, Sentence
    from trainmon.model import Verb

Reads = Literal["job", "open jobs", "pending jobs", "steps", "config", "evaluations", "stacks", "gate"]
"""What a plan needs beside the switches: the job that is meant, all jobs that have not ended, or all that wait for the
nodes; the steps and the batch script of the job, the config file of the run, the earlier starts of its evaluator, how
the stacks of its ranks can be read; the nodes on which it may start again."""

STARTS = "it starts anew"
"""The milestone of a job that runs again."""

PLANNING, EFFECTS = "trainmon.actions.planning", "trainmon.actions.verification"


class VerbSpec(NamedTuple):
    """One verb: its words on the screen and on the command line, and the functions that plan and verify it."""

    name: Verb
    plan: str
    """The function that plans it, `module:function`: PlanContext → RowPlan."""
    title: str
    """The title of its plan."""
    verify: str = f"{EFFECTS}:unobserved"
    """The function that says which of its effects are observed: Observation → Progress."""
    proof: str = ""
    """The function whose answer is true if what is observed now can only come from this action: Observation → Any."""

    # ---- in the dashboard ----
    target: Literal["run", "job", "node"] = "run"
    """What it acts on. A verb of runs acts on the run of a selected job."""
    menu: str = ""
    """Its line in the menu of a row; empty: not there. The plan of `unkill` finds the switches of both kinds."""
    key: str = ""
    """Its capital letter, which several verbs may share."""
    help: str = ""
    """What the key does. Empty for the other verbs of the same key."""
    is_in_footer: bool = False
    """Whether the footer shows the key, with the title."""
    also: tuple[str, ...] = ()
    """Other names in the palette."""
    button: str = ""
    """The button that acts, if it says something else than the title. The other button says Close, because Cancel is
    about jobs."""
    buttons: str = ""
    """The same for several actions, with `{}` for their number."""
    ends: bool = False
    """Whether it ends the job, or may end it."""

    # ---- on the command line ----
    usage: str = ""
    """The arguments of its command; empty: no command."""
    summary: str = ""
    """The help of its command."""
    example: str = ""
    """Arguments of its command, and what that does."""
    options: tuple[str, ...] = ()
    """The options of its own, by their names in trainmon.cli.commands."""
    first_effect: Seconds = 8.0
    """How long its command waits for the first effect: a file that is there, a job that is held."""
    success: str = ""
    """The milestone without which its command is not done."""

    # ---- plans and verification ----
    reads: tuple[Reads, ...] = ()
    """What its plan needs; empty: only the switches of the run, and nothing of the scheduler."""
    is_of_one_job: bool = False
    """Whether it matters which job of a run is meant."""
    saves: bool = False
    """Whether its effect is a new checkpoint."""
    is_in_queue: bool = False
    """Whether one poll of the queue shows its effect."""
    followed: Seconds = 3_600.0
    """How long its effects are awaited. What was missed stays recorded."""

    @property
    def takes_jobs(self) -> bool:
        """Whether its command also takes jobs. A job that belongs to no run has no switches and no script."""
        return "JOB" in self.usage

    def button_text(self, many: int) -> str:
        """The text of the button for a number of actions. `Cancel the job 3` would look like a job id."""
        button = self.button or self.title
        return button if many <= 1 else (self.buttons or f"{button} ({{}} actions)").format(many)


VERBS: tuple[VerbSpec, ...] = (
    VerbSpec(
        "save", f"{PLANNING}.switches:save", "Save", f"{EFFECTS}:save", f"{EFFECTS}:is_armed",
        menu="Save a checkpoint now",
        key="S", help="save: create the run's save switch", is_in_footer=True,
        usage="RUN...",
        summary="Ask runs to save a checkpoint: create their save switch, a file that the trainer looks for.",
        example="video-2b --wait 10m  # wait for the checkpoint",
        saves=True,
    ),
    VerbSpec(
        "kill", f"{PLANNING}.switches:kill", "Kill", f"{EFFECTS}:kill", f"{EFFECTS}:is_armed",
        menu="Save and exit (kill switch)",
        key="K", help="kill: create the kill switch; the run saves and exits", is_in_footer=True,
        usage="RUN...",
        summary="Ask runs to save and exit: create their kill switch, a file that stays until it is removed.",
        example='video-2b --why "bad data"  # the reason is recorded',
        ends=True, saves=True,
    ),
    VerbSpec(
        "unkill", f"{PLANNING}.switches:undo", "Remove a switch", f"{EFFECTS}:undo", f"{EFFECTS}:is_gone",
        menu="Remove an armed switch", button="Remove it", buttons="Remove them ({} actions)",
        key="U", help="remove one of the run's armed switches",
        usage="RUN...", summary="Remove the armed kill switches of runs.",
        example="video-2b  # or the next job exits, too",
        options=("kill switch",),
    ),
    VerbSpec(
        "unsave", f"{PLANNING}.switches:undo", "Remove a switch", f"{EFFECTS}:undo", f"{EFFECTS}:is_gone",
        button="Remove it", buttons="Remove them ({} actions)",
        key="U",
        usage="RUN...", summary="Remove the armed save switches of runs.",
        example="video-2b  # if the trainer ignores it",
        options=("save switch",),
    ),
    VerbSpec(
        "requeue", f"{PLANNING}.requeue:requeue", "Requeue", f"{EFFECTS}:requeue", f"{EFFECTS}:was_requeued",
        target="job", menu="Requeue its job", buttons="Requeue {} jobs",
        key="R", help="requeue the job", is_in_footer=True,
        usage="RUN|JOB...",
        summary="Stop jobs and put them back into the queue, or start ended ones again (scontrol requeue).",
        example="video-2b --dry-run  # print the plan, and do nothing",
        # Slurm gives the job 30 s to end and keeps it back for two minutes more, then looks for nodes every 30 s, and
        # polls are 15 to 30 s apart.
        first_effect=240.0, success=STARTS,
        ends=True, reads=("job", "config", "evaluations", "gate"), is_of_one_job=True, is_in_queue=True,
    ),
    VerbSpec(
        "cancel", f"{PLANNING}.jobs:cancel", "Cancel", f"{EFFECTS}:cancel", f"{EFFECTS}:is_cancelled",
        target="job", menu="Cancel its job", button="Cancel the job", buttons="Cancel {} jobs",
        key="C", help="cancel the job (scancel)", is_in_footer=True, also=("scancel",),
        usage="RUN|JOB...", summary="Cancel jobs (scancel).",
        example='88 --why "wrong config"  # job 88 only',
        ends=True, reads=("job",), is_of_one_job=True, is_in_queue=True,
    ),
    VerbSpec(
        "hold", f"{PLANNING}.jobs:hold", "Hold", f"{EFFECTS}:hold", f"{EFFECTS}:is_as_wanted",
        target="job", menu="Hold its job", buttons="Hold {} jobs",
        key="H", help="hold the pending job, or release the held one",
        usage="RUN|JOB...", summary="Hold pending jobs (scontrol hold).",
        example="88 89  # they stay in the queue and do not start",
        reads=("open jobs",), is_of_one_job=True, is_in_queue=True,
    ),
    VerbSpec(
        "release", f"{PLANNING}.jobs:release", "Release", f"{EFFECTS}:hold", f"{EFFECTS}:is_as_wanted",
        target="job", menu="Release its job", buttons="Release {} jobs",
        key="H",
        usage="RUN|JOB...", summary="Release held jobs (scontrol release).",
        example="88 89  # they may start again",
        reads=("open jobs",), is_of_one_job=True, is_in_queue=True,
    ),
    VerbSpec(
        "signal", f"{PLANNING}.jobs:signal", "Signal", f"{EFFECTS}:signal",
        menu="Send USR1 to its trainer",
        key="T", help="send SIGUSR1 to the trainer (emergency checkpoint)",
        usage="RUN|JOB... [SIGNAL]",
        summary="Send a signal to trainers that save a checkpoint when they receive it. The default is USR1.",
        example="video-2b USR2  # for a trainer that saves at SIGUSR2",
        ends=True, reads=("job", "steps"), is_of_one_job=True, saves=True,
    ),
    VerbSpec(
        "queue", f"{PLANNING}.jobs:queue", "Queue another", f"{EFFECTS}:queue", f"{EFFECTS}:submitted_job",
        menu="Queue another job", button="Queue",
        key="N", help="queue another job of the run; it runs after this one", also=("queue another",),
        usage="RUN...",
        summary="Queue another job of each run: its script (sbatch). The new jobs start after the current ones.",
        example="video-2b --count 2  # two more jobs, one after the other",
        options=("count",),
        reads=("job", "config", "gate"), is_of_one_job=True, is_in_queue=True,
    ),
    VerbSpec(
        "exclude", f"{PLANNING}.jobs:exclude", "Exclude", f"{EFFECTS}:exclude", f"{EFFECTS}:is_excluded",
        target="node", menu="Exclude it from pending jobs",
        key="X", help="keep pending jobs off this node; drain it if permitted", is_in_footer=True, also=("drain",),
        usage="NODE...", summary="Exclude nodes from pending jobs, and drain the nodes if you have permission.",
        example="gpu-014 --run video-2b  # only for the jobs of this run",
        options=("run",),
        reads=("pending jobs",),
    ),
    VerbSpec(
        "stacks", f"{PLANNING}.jobs:stacks", "Read the stacks",
        menu="Read the stacks of its ranks",
        usage="RUN...", summary="Read the Python stacks of the ranks of runs, with py-spy or trainmon_hooks.",
        example="video-2b --dry-run  # show how each rank would be read",
        reads=("stacks",), first_effect=90.0,
    ),
    VerbSpec(
        "evaluate", f"{PLANNING}.requeue:evaluate", "Evaluate", f"{EFFECTS}:evaluate", f"{EFFECTS}:result_at",
        reads=("job", "evaluations"),
        followed=86_400.0,  # an evaluation may wait in the queue and run for hours
    ),
)  # fmt: skip
"""In the order of the menu and of the commands."""

VERB: dict[str, VerbSpec] = {spec.name: spec for spec in VERBS}


def ask(text: str, *verbs: Verb, subject: str = "") -> Sentence:
    """A sentence with how a person asks for these verbs in place of each `{}`; with the subject, in a whole command."""
    from trainmon.lib import Means  # not for `--help`

    before, *rest = text.split("{}")
    parts: list[str | Means] = [before]
    for verb, after in zip(verbs, rest, strict=True):
        key, command = VERB[verb].key, f"trainmon-tui {verb} {subject}"
        means = Means(f"{key}, or {command}", command) if subject else Means(key, f"`{verb}`")
        parts += [means, after]
    return tuple(parts)


def verbs_of_key(verb: str) -> tuple[str, ...]:
    """The verbs that share the key of this one, and it."""
    return tuple(spec.name for spec in VERBS if spec.name == verb or (spec.key and spec.key == VERB[verb].key))


def function(name: str) -> Callable[..., Any]:
    """The function that a record names, `module:function`."""
    module, _, found = name.partition(":")
    return getattr(import_module(module), found)  # type: ignore[no-any-return]
