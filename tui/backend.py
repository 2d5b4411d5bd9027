"""The one door between the face and the rest: states come in, events and requests go out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trainmon.lib import Seconds
from trainmon.model import Action, ActionRequest, Curve, Plan, Series, Silence, State


class Backend(Protocol):
    """What the dashboard may ask of the engine. Every method returns at once; none raises."""

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        """Have every new State handed to sink (on another thread), the present one first. Returns the cancel."""

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        """The last `span` seconds of a number. Subjects: `node/3` (GPU 3; temperature, memory, utilization, power)
        and a Disk.key (free_bytes, free_inodes). Memory is MiB, power W. Empty for what is not known."""

    def refresh(self) -> None:
        """Look at everything again now (rate-limited): reconnect what waits for its next try."""

    def login(self, source: str) -> None:
        """Try again to log in to a held source, such as `node:gpu-001`, asking what must be asked."""

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        """Answer a Prompt by its id; None declines it."""

    def prepare(self, ask: ActionRequest, reply: Callable[[Plan], None]) -> None:
        """Look at what an action would meet now, and hand its Plan to reply (on another thread), within 10 s. Does
        nothing yet; whatever stands in the way becomes a Refusal in the Plan."""

    def act(self, actions: Sequence[Action]) -> None:
        """Do what a Plan showed: each is written down, checked again, done, and told in State.actions."""

    def poll_job(self, key: str) -> None:
        """A person views this job: poll its details, at most every few seconds."""

    def curve(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        """One metric of one W&B run (`entity/project/id`) from a point on; all of it where `epoch` is not the present
        one. Empty for what is not known."""

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        """Fetch the newest media that a run logged into a directory of this machine, and hand reply a sentence (on
        another thread): where they are, or what went wrong."""

    def acknowledge(self, alert: str, why: str = "") -> None:
        """A person has seen this alert (its id) and sees to it: it is not repeated, nor taken further."""

    def mute(self, silence: Silence) -> None:
        """Do not tell what matches it until then. Its id, its maker and when it was made are filled in here."""

    def unmute(self, silence: str) -> None:
        """Take a silence back, by its id."""
