"""The palette: every key's action by its words, and every host, run, run's charts, job and alert by its name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from trainmon.model import State
from trainmon.text import clean
from tui.alert_rows import ORDERS
from tui.keys import KEYS, PLACES, Key

if TYPE_CHECKING:
    from tui.app import Dashboard

PRESSABLE = ("view", "act")

NOT_BY_NAME = frozenset({"app.palette", "app.how_to_quit", "lines.choose", "lines.mark", "log.next", "log.previous"})
"""Keys that say nothing away from where they are pressed."""


def commands(place: str) -> list[Key]:
    """What the palette offers in a place."""
    scopes = PLACES[place]
    return [key for key in KEYS if key.group in PRESSABLE and key.scope in scopes and key.id not in NOT_BY_NAME]


def jobs(state: State) -> Iterator[tuple[str, str]]:
    """The jobs that the queue lists, by their key, as `go to job 88_3 video-2b`."""
    for key, job in state.jobs.items():
        if job.gone_at is None:
            yield key, clean(f"go to job {job.id} {job.name}", 120)


def charts(state: State) -> Iterator[tuple[str, str]]:
    """The runs that are in W&B, as `W&B charts of video-2b`."""
    for name, run in state.runs.items():
        if run.spec.wandb is not None:
            yield name, clean(f"W&B charts of {name}", 120)


def alerts(state: State) -> Iterator[tuple[str, str]]:
    """The alerts that fire, by their id, as `alert run-dead: video-2b has ended`; the first hundred."""
    firing = sorted((one for one in state.alerts.values() if one.is_firing), key=ORDERS["worst"])
    for one in firing[:100]:
        yield one.id, clean(f"alert {one.rule}: {one.summary}", 120)


class Commands(Provider):
    """Our keys, hosts, runs and their charts, jobs and alerts."""

    @property
    def dashboard(self) -> Dashboard:
        return cast("Dashboard", self.app)

    def _entries(self) -> list[tuple[str, str, partial[None]]]:
        dashboard = self.dashboard
        found = [
            (f"{key.words}  ({key.cap})", "key", partial(dashboard.press, key.keys.split(",")[0]))
            for key in commands(dashboard.place_of(self.screen))
        ]
        found.append(("choose the colours", "theme", partial(dashboard.action_change_theme)))
        state = dashboard.shown
        if state is not None:
            found += [(f"go to run {name}", "run", partial(dashboard.go_to_run, name)) for name in state.runs]
            found += [(words, "charts", partial(dashboard.go_to_charts, name)) for name, words in charts(state)]
            found += [(f"go to node {name}", "node", partial(dashboard.go_to_node, name)) for name in state.nodes]
            found += [(words, "job", partial(dashboard.go_to_job, key)) for key, words in jobs(state)]
            found += [(words, "alert", partial(dashboard.go_to_alert, name)) for name, words in alerts(state)]
        return found

    async def discover(self) -> Hits:
        for words, kind, act in self._entries():
            if kind in {"key", "theme"}:
                yield DiscoveryHit(words, act)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for words, _, act in self._entries():
            score = matcher.match(words)
            if score > 0:
                yield Hit(score, matcher.highlight(words), act)
