"""The stories of the demo: what fails, when and for how long. A function of the seconds since the start."""

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
    "login": "a node needs an interactive login (2FA)",
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
    "wandb-down": (WANDB,),
}
"""The victims of each story, in turn. Stories that overlap in time share no node and no run, and no story needs W&B
while it is down. The spike comes late: W&B needs some history to know the usual band."""

FIRST_AT: Seconds = 15.0
"""The first story begins early: 40 s after the start, a GPU is visibly too hot."""
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
        self._rounds: dict[int, tuple[Incident, ...]] = {}

    def incidents(self, elapsed: Seconds) -> tuple[Incident, ...]:
        """The active incidents `elapsed` seconds after the start."""
        current = int(elapsed // ROUND)
        incidents = (incident for number in (current - 1, current) if number >= 0 for incident in self.round(number))
        return tuple(incident for incident in incidents if incident.begins <= elapsed < incident.ends)

    def round(self, number: int) -> tuple[Incident, ...]:
        """All incidents of the n-th round, in order of their begin."""
        if number not in self._rounds:
            self._rounds = {n: incidents for n, incidents in self._rounds.items() if n >= number - 1}
            incidents = []
            for index, story in enumerate(self.order):
                victim = VICTIMS[story][number % len(VICTIMS[story])]
                begins = number * ROUND + FIRST_AT + index * SPACING
                ends = begins + DURATIONS[story]
                incidents.append(Incident(story, victim, begins, ends))
                if story == "lost":
                    incidents.append(Incident("reboot", victim.partition("/")[0], ends, ends + REBOOT))
            self._rounds[number] = tuple(incidents)
        return self._rounds[number]
