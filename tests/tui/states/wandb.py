"""States of a cluster whose runs are in W&B, one for each thing that the screen must be able to say of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.tui.states.states import DISKS, NOW, calm, run
from tests.tui.states.wandb_runs import NAME, attempt, watched
from trainmon.model import LossTrouble, RunSpec, Sample, Source, State, Wandb, WandbRun, WandbSpec

SAMPLES = (
    Sample(key="val/generated", kind="image", file="media/images/val/generated_12000_ab12.png", step=12_000,
           bytes=184_320, width=512, height=288, caption="a red fox in the snow", kept="/tmp/kept/generated.png"),
    Sample(key="val/video", kind="video", file="media/videos/val/video_12000_cd34.mp4", step=12_000, bytes=1_843_200,
           width=512, height=288, note="its first frame is shown"),
    Sample(key="val/table", kind="table", file="media/table/val/table_8_ef56.json", step=8_000),
)  # fmt: skip

CONFIG = {"optimizer.lr": "0.0003", "optimizer.name": "adamw", "model.layers": "48", "data.path": "/fsx/video/clips"}


EARLIER = (attempt(2, step=9_200, heartbeat_at=NOW - 20_600.0), attempt(1, step=4_400, heartbeat_at=NOW - 40_300.0))


def current(**more: object) -> WandbRun:
    plain = {"commit": "8baa0f9c2d41", "tags": ("final", "2b"), "config": CONFIG}
    return attempt(3, **{**plain, **more})


def wandb(**more: object) -> State:
    """Its third attempt runs, and everything is ok; another run beside it is not in W&B."""
    facts: dict[str, Any] = {"samples": SAMPLES, "runs": (current(), *EARLIER),
                       "why": "video-2b-try-3 (id3) is running", "since": NOW - 20_000.0}  # fmt: skip
    found = watched(**(facts | more))
    other = run("vlm-7b")
    return replace(
        found, nodes=calm().nodes, disks={one.key: one for one in DISKS}, runs={**found.runs, other.name: other},
        sources={**calm().sources, **found.sources},
    )  # fmt: skip


def several() -> State:
    both = (current(), attempt(2, state="running"), EARLIER[1])
    why = (
        "2 runs are active where one is expected: video-2b-try-3 (id3), video-2b-try-2 (id2)"
        " (team/project, group video-2b-final)"
    )
    return wandb(runs=both, active=("id3", "id2"), phase="several", since=NOW - 400.0, why=why)


def waiting() -> State:
    ended = (current(state="crashed", heartbeat_at=NOW - 700.0), *EARLIER)
    why = "video-2b-try-3 (id3) crashed at step 12,880; waiting up to 15m for the next W&B run"
    return wandb(runs=ended, active=(), phase="waiting", since=NOW - 400.0, why=why)


def overdue() -> State:
    why = "video-2b-try-3 (id3) crashed at step 12,880, and no new run has started within 15m"
    one = waiting().runs[NAME]
    assert one.wandb is not None
    late = replace(one, wandb=replace(one.wandb, phase="overdue", since=NOW - 2_000.0, why=why))
    return replace(waiting(), runs={**waiting().runs, NAME: late})


def spike() -> State:
    return wandb(
        trouble=LossTrouble(state="spike", key="train/loss", value=9.5, step=12_300, at=NOW, low=1.7, high=2.1)
    )


def down() -> State:
    """Its server has not answered for five minutes."""
    source = Source(
        name=f"wandb:{NAME}", kind="wandb", cluster="prod", health="down", phase="retrying", answered_at=NOW - 310.0,
        error="W&B asks to wait: too many requests (429)", hint="tried again in 2m; raise [wandb] every",
    )  # fmt: skip
    found = wandb(polled_at=NOW - 310.0)
    return replace(found, sources={**found.sources, source.name: source})


def no_key() -> State:
    """Its server was never asked."""
    spec = RunSpec(name=NAME, cluster="prod", wandb=WandbSpec(project="team/project", group="video-2b-final"))
    source = Source(
        name=f"wandb:{NAME}", kind="wandb", cluster="prod", health="down", error="no key for wandb.ai was found",
        hint="run `wandb login`, or set WANDB_API_KEY",
    )  # fmt: skip
    found = wandb()
    bare = run(NAME, spec=spec, wandb=Wandb())
    return replace(found, runs={**found.runs, NAME: bare}, sources={**calm().sources, source.name: source})


STATES = {
    "wandb": wandb, "wandb-several": several, "wandb-waiting": waiting, "wandb-overdue": overdue,
    "wandb-spike": spike, "wandb-down": down, "wandb-no-key": no_key,
}  # fmt: skip
