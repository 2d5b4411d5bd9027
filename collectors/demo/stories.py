"""What the demo begins with: its nodes, its runs, which run trains where, and the stories of what fails, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from trainmon.lib import ConfigError, Seconds
from trainmon.model import RunSpec, WandbSpec

CLUSTER = "demo"
ME = "ana"
"""The user name of the person at the dashboard."""
NODES = tuple(f"gpu-{number:03}" for number in range(1, 17))
GPUS = 8
READER = NODES[0]
"""Shared files (/fsx, /home, logs, switches) are read here, as from a login node. No story makes it fail."""

Format = Literal["megatron", "torchtitan", "hf", "nanotron", "kempnerforge"]

TB = 10**12


class Trainer(msgspec.Struct, frozen=True):
    """A run, its training program and its step time."""

    run: RunSpec
    format: Format
    user: str
    command: str
    job: int
    """The Slurm job number of its first attempt."""
    first_step: int
    step_time: Seconds
    log_every: int
    save_every: int
    """The steps between two saves, about two minutes."""
    save_time: Seconds
    tokens_per_step: int
    batch: int
    loss_floor: float
    memory_mib: int
    checkpoint_bytes: int

    @property
    def gpus(self) -> int:
        return len(self.run.nodes) * GPUS

    @property
    def target(self) -> int:
        return self.run.target_step or self.first_step

    @property
    def age(self) -> Seconds:
        """The age of its job when the demo begins: some hours, at most the time of its steps."""
        return min((self.job % 7 + 1) * 3_600.0, self.first_step * self.step_time)

    @property
    def validate_every(self) -> int:
        """The steps between two validations, about four minutes, just before a save."""
        return 2 * self.save_every - 3


def _run(name: str, first: int, last: int, target: int, owner: str, *, has_hooks: bool = True) -> RunSpec:
    home = f"/fsx/{name}"
    return RunSpec(
        name=name,
        cluster=CLUSTER,
        log=f"{home}/logs/*.out",
        checkpoints=f"{home}/checkpoints",
        kill_switch=f"{home}/kill-switch",
        save_switch=f"{home}/save-switch",
        status=f"{home}/kill-switch.status" if has_hooks else None,
        script=f"{home}/train.slurm",
        target_step=target,
        stall_after=40.0,
        nodes=NODES[first - 1 : last],
        wandb=WandbSpec(project=f"llm-lab/{name.partition('-')[0]}", group=f"{name}-final"),
        labels={"owner": owner},
        config=f"{home}/train.yaml",
        data_manifest=f"{home}/data/manifest.txt",
    )


TRAINERS: tuple[Trainer, ...] = (
    Trainer(
        run=_run("video-2b", 1, 6, 150_000, "ana"),
        format="megatron",
        user="ana",
        command="python -u pretrain_gpt.py --tensor-model-parallel-size 4 --num-layers 48 --bf16",
        job=418190,
        first_step=81_204,
        step_time=4.0,
        log_every=1,
        save_every=32,
        save_time=12.0,
        tokens_per_step=1024 * 4096,
        batch=1024,
        loss_floor=1.71,
        memory_mib=74_210,
        checkpoint_bytes=9 * TB // 2,
    ),
    Trainer(
        run=_run("llm-7b", 7, 10, 95_000, "ben"),
        format="torchtitan",
        user="ben",
        command="python -m torchtitan.train --job.config_file ./llm_7b.toml",
        job=418223,
        first_step=12_870,
        step_time=2.1,
        log_every=1,
        save_every=55,
        save_time=8.0,
        tokens_per_step=64 * 8192,
        batch=64,
        loss_floor=1.86,
        memory_mib=70_912,
        checkpoint_bytes=2 * TB,
    ),
    Trainer(
        run=_run("sft-chat", 11, 11, 4_500, "eva"),
        format="hf",
        user="eva",
        command="python sft.py --model_name_or_path base-8b --per_device_train_batch_size 4",
        job=418301,
        first_step=3_892,
        step_time=1.5,
        log_every=10,
        save_every=90,
        save_time=6.0,
        tokens_per_step=128 * 2048,
        batch=128,
        loss_floor=0.42,
        memory_mib=61_440,
        checkpoint_bytes=TB // 10,
    ),
    Trainer(
        run=_run("smol-3b", 12, 13, 1_500_000, "ben"),
        format="nanotron",
        user="ben",
        command="python -u run_train.py --config-file smol-3b.yaml",
        job=418100,
        first_step=211_364,
        step_time=5.0,
        log_every=1,
        save_every=28,
        save_time=10.0,
        tokens_per_step=1_600_000,
        batch=800,
        loss_floor=1.98,
        memory_mib=66_320,
        checkpoint_bytes=TB // 2,
    ),
    Trainer(
        run=_run("moe-1b", 14, 15, 200_000, "kim", has_hooks=False),
        format="kempnerforge",
        user="kim",
        command="python scripts/train.py configs/train/moe_1b.toml",
        job=418277,
        first_step=50_430,
        step_time=1.25,
        log_every=5,
        save_every=100,
        save_time=7.0,
        tokens_per_step=156_250,
        batch=76,
        loss_floor=2.08,
        memory_mib=72_900,
        checkpoint_bytes=TB // 4,
    ),
)
"""gpu-016 is the spare: no run trains on it."""

RUNS: tuple[RunSpec, ...] = tuple(trainer.run for trainer in TRAINERS)
"""The runs, with the paths of the cluster. `relocated` moves them under a directory of this machine."""


def relocated(run: RunSpec, directory: Path) -> RunSpec:
    """The same run, with its files under a directory of this machine."""

    names = ("log", "checkpoints", "kill_switch", "save_switch", "status", "script", "config", "data_manifest")
    paths = {name: f"{directory}{path}" for name in names if (path := getattr(run, name)) is not None}
    return msgspec.structs.replace(run, **paths)


STORIES: dict[str, str] = {
    "hot": "a GPU heats up until it slows itself down",
    "lost": "a GPU falls off the bus (Xid 79), its run dies, the node reboots",
    "hang": "a run stops stepping with its GPUs at 100% and little power",
    "disk": "the shared disk fills, bytes and inodes",
    "clock": "a node's clock is off",
    "login": "a node waits for a login (2FA)",
    "spike": "the loss jumps far out of its usual band and comes back",
    "node": "a node no longer answers over SSH",
    "restart": "a run fails; its next W&B run appears and is followed automatically",
    "two-active": "a second run starts in the W&B group of a running one",
    "burst": "a log grows by a thousand lines a second",
    "nan": "the loss of a run becomes NaN",
    "wandb-down": "W&B is unreachable; the runs train on",
}
"""The stories by the name for --demo=STORY, in the order in which they run."""

DURATIONS: dict[str, Seconds] = {
    "hot": 110.0,
    "lost": 110.0,
    "hang": 130.0,
    "disk": 120.0,
    "clock": 110.0,
    "login": 150.0,
    "spike": 80.0,
    "node": 90.0,
    "restart": 75.0,
    "two-active": 80.0,
    "burst": 6.0,
    "nan": 90.0,
    "wandb-down": 70.0,
}

VICTIMS: dict[str, tuple[str, ...]] = {
    "hot": ("gpu-003/5", "gpu-009/2", "gpu-005/0", "gpu-013/7"),
    "lost": ("gpu-014/3", "gpu-012/6"),
    "hang": ("llm-7b", "video-2b"),
    "disk": ("/fsx", "/fsx", "/home"),
    "clock": ("gpu-008", "gpu-016"),
    "login": ("gpu-011", "gpu-004", "gpu-007"),
    "spike": ("smol-3b", "llm-7b"),
    "node": ("gpu-006", "gpu-010", "gpu-002", "gpu-016"),
    "restart": ("smol-3b", "video-2b"),
    "two-active": ("moe-1b", "sft-chat"),
    "burst": ("llm-7b", "smol-3b", "video-2b"),
    "nan": ("video-2b", "sft-chat"),
    "wandb-down": ("W&B",),
}
"""The victims of each story, in turn. Stories that overlap in time share no node and no run, and no story needs W&B
while it is down. The spike comes late: W&B needs some history to know the usual band."""

TOLD: dict[str, tuple[str, str]] = {
    "hot": ("GPU {gpu} of {node} overheats", "2, Enter"),
    "lost": ("GPU {gpu} of {node} is lost, and its run dies", "2, Enter"),
    "reboot": ("{victim} reboots", "2"),
    "hang": ("{victim} hangs: its GPUs are at 100%, with little power", "1, Enter"),
    "disk": ("{victim} fills up", "3, Enter"),
    "clock": ("the clock of {victim} is off by minutes", "5"),
    "login": ("{victim} asks for a login", "L"),
    "spike": ("the loss of {victim} jumps", "1, Enter"),
    "node": ("{victim} does not answer", "2, Enter"),
    "restart": ("{victim} fails and starts again", "1, Enter"),
    "two-active": ("{victim} has a second W&B run", "1, Enter"),
    "burst": ("{victim} logs 1,000 lines a second", "1, l"),
    "nan": ("the loss of {victim} is NaN", "1, Enter"),
    "wandb-down": ("W&B does not answer; the runs train on", "6"),
}
"""What a person is told while a story goes on, and the keys that show it."""

QUIET = "nothing is wrong yet"

FIRST_AT: Seconds = 15.0
"""The first story begins early: 40 s after the start, a GPU is visibly too hot."""
NAMED_AT: Seconds = 2.0
"""A story that is asked for by its name begins so early, or has gone on already: see UNDER_WAY."""
UNDER_WAY: dict[str, Seconds] = {"hot": 8.0, "hang": 37.0, "disk": 76.0, "spike": 4.0, "two-active": 20.0}
"""How long a story takes until it can be seen. So long it has gone on when a demo that begins with it starts."""
SPACING: Seconds = 45.0
ROUND: Seconds = 600.0
"""The period after which all stories repeat with other victims."""
REBOOT: Seconds = 12.0
"""The reboot time of the node of a lost GPU. Only a reboot brings the GPU back."""


class Incident(msgspec.Struct, frozen=True):
    """A story that hits one victim: a node, a GPU as `node/3`, a run or a disk."""

    story: str
    victim: str
    begins: Seconds
    ends: Seconds

    @property
    def node(self) -> str | None:
        name = self.victim.partition("/")[0]
        return name if name in NODES else None

    @property
    def gpu(self) -> int | None:
        return int(self.victim.partition("/")[2]) if self.node and "/" in self.victim else None

    @property
    def told(self) -> str:
        """`GPU 5 of gpu-003 overheats · press 2, Enter`."""
        what, keys = TOLD[self.story]
        return f"{what.format(victim=self.victim, node=self.node, gpu=self.gpu)} · press {keys}"


class Schedule:
    """All incidents, in order, given the first story.

    Raises:
        ConfigError: when no story has that name.
    """

    def __init__(self, first: str | None = None) -> None:
        names = list(STORIES)
        if first is not None and first not in STORIES:
            raise ConfigError([f"--demo={first}: unknown story"], hint=f"one of {', '.join(names)}")
        at = names.index(first) if first else 0
        self.order = (*names[at:], *names[:at])
        self.lead: Seconds = UNDER_WAY.get(first or "", 0.0)
        """How long the world has gone on when the demo starts: `elapsed` begins at its negative."""
        self._first_at = NAMED_AT - self.lead if first else FIRST_AT

    def incidents(self, elapsed: Seconds) -> tuple[Incident, ...]:
        """The active incidents `elapsed` seconds after the start."""
        current = max(0, int(elapsed // ROUND))
        incidents = (incident for number in (current - 1, current) if number >= 0 for incident in self.round(number))
        return tuple(incident for incident in incidents if incident.begins <= elapsed < incident.ends)

    def round(self, number: int) -> tuple[Incident, ...]:
        """All incidents of the n-th round, in order of their begin."""
        incidents = []
        for index, story in enumerate(self.order):
            victim = VICTIMS[story][number % len(VICTIMS[story])]
            begins = number * ROUND + FIRST_AT + index * SPACING
            ends = begins + DURATIONS[story]
            if number == index == 0:
                begins = self._first_at
            incidents.append(Incident(story, victim, begins, ends))
            if story == "lost":
                incidents.append(Incident("reboot", victim.partition("/")[0], ends, ends + REBOOT))
        return tuple(incidents)
