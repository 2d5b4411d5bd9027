"""What goes wrong in the demo, when, and for how long: a pure function of the seconds since its start."""

from __future__ import annotations

import msgspec

from collectors.demo.model.inventory import NODES
from trainmon.lib import ConfigError, Seconds

WANDB = "W&B"
STORIES: dict[str, str] = {
    "hot": "a GPU heats up until it slows itself down",
    "lost": "a GPU falls off the bus (Xid 79), its run dies, the node reboots",
    "hang": "a run stops stepping with its GPUs at 100 % and little power",
    "disk": "the shared disk fills, bytes and inodes",
    "clock": "a node's clock is off",
    "login": "a node wants a person to log in again",
    "spike": "the loss jumps far out of its band, as W&B's curves show, and comes back",
    "node": "a node no longer answers over SSH",
    "restart": "a run fails; W&B waits for the next of its group, which is taken up by itself",
    "two-active": "somebody starts a second run in the W&B group of one that trains",
    "burst": "a log grows by a thousand lines a second",
    "nan": "a run loses its loss to NaN",
    "wandb-down": "W&B cannot be reached; the runs train on",
}
"""The stories by the name that --demo=STORY takes, in the order in which they run."""

LASTS: dict[str, Seconds] = {
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
    "wandb-down": (WANDB,),
}
"""Who it happens to, in turn. Stories that overlap in time have no node and no run in common, and
while W&B is down none needs it. A spike comes when W&B knows for long enough what is usual."""

FIRST_AT: Seconds = 15.0
"""Soon enough that a GPU is visibly too hot 40 s after the start."""
SPACING: Seconds = 45.0
ROUND: Seconds = 600.0
"""After this long it all happens again, to others."""
REBOOT: Seconds = 12.0
"""How long a node with a lost GPU is away afterwards: only a reboot brings the GPU back."""


class Act(msgspec.Struct, frozen=True):
    """One story happening to one victim: a node, a GPU as `node/3`, a run or a disk."""

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


class Script:
    """All that will happen, given the story that comes first."""

    def __init__(self, first: str | None = None) -> None:
        names = list(STORIES)
        if first is not None and first not in STORIES:
            raise ConfigError([f"--demo={first}: no such story"], hint=f"stories: {', '.join(names)}")
        at = names.index(first) if first else 0
        self.order = (*names[at:], *names[:at])
        self._rounds: dict[int, tuple[Act, ...]] = {}

    def acts(self, elapsed: Seconds) -> tuple[Act, ...]:
        """What is happening `elapsed` seconds after the start."""
        current = int(elapsed // ROUND)
        acts = (act for number in (current - 1, current) if number >= 0 for act in self.round(number))
        return tuple(act for act in acts if act.begins <= elapsed < act.ends)

    def round(self, number: int) -> tuple[Act, ...]:
        """Everything of the n-th round, in order of its begin."""
        if number not in self._rounds:
            self._rounds = {n: acts for n, acts in self._rounds.items() if n >= number - 1}
            self._rounds[number] = tuple(self._write(number))
        return self._rounds[number]

    def _write(self, number: int) -> list[Act]:
        acts = []
        for place, story in enumerate(self.order):
            victims = VICTIMS[story]
            victim = victims[number % len(victims)]
            begins = number * ROUND + FIRST_AT + place * SPACING
            acts.append(Act(story, victim, begins, begins + LASTS[story]))
            if story == "lost":
                node = victim.partition("/")[0]
                acts.append(Act("reboot", node, acts[-1].ends, acts[-1].ends + REBOOT))
        return acts
