"""`5 Alerts`: open alerts with deliveries and acknowledgements, then silences and the last 24 hours."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon.lib import clean
from trainmon.model import State
from tui.keys import bindings
from tui.panes.base import Entries, Pane
from tui.style import HEADING, SENTENCE, Row
from tui.views.alert_detail import Moment, moment_of_alert
from tui.views.alerts import (
    ALERT_FIELDS,
    SILENCE,
    TO_DO,
    AlertRows,
    alert_head,
    broken_channels,
    calm_sentence,
    open_alerts,
    open_counts,
    sender,
    sender_sentence,
    silence_text,
    status_of,
)


class AlertsPane(Pane):
    """The alerts. The bottom of the frame shows the selected one in full."""

    NUMBER = "5"
    NAME = "Alerts"
    LISTS_ALERTS = True
    ORDER = "worst"
    FIELDS = ALERT_FIELDS
    BINDINGS = bindings("alerts")

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._drawn = AlertRows()

    def entries(self, state: State) -> Entries:
        return [*state.alerts.values()], state.at

    def _rows(self, state: State) -> Sequence[Row]:
        size, screen = (self.width, self.lines.size.height), self.app.size.height
        return self._drawn.rows(state, size, self.sort, self.filter, self.columns, screen)

    def listed(self, state: State) -> frozenset[str]:
        """The alerts of a State that have a row in sight as soon as it is drawn."""
        if not self.display:
            return frozenset()
        top, height = self.lines.scroll_offset.y, self.lines.size.height
        rows = self._rows(state)[top : top + height]
        return frozenset(row.key for row in rows) if height else frozenset(state.alerts)

    def draw(self, state: State, width: int) -> None:
        rows = self._rows(state)
        self.wanted = self._drawn.wanted
        self.head(*(alert_head(self._drawn.shape, self.sort) if rows else ()))
        self.caption(open_counts(state) if state.alerts else "", sender(state).text)
        if rows or self.filter:
            self.show_rows(rows, "alert")
        else:
            text, style = calm_sentence(state)
            self.show_message((text, style), (sender_sentence(state), "dim"))

    def footnote(self, state: State) -> tuple[str, str]:
        """The selected alert in full, or a channel that is broken."""
        alert = state.alerts.get(self.selected or "")
        own = (row.text for row in self.lines.rows if row.key.removeprefix(HEADING).partition(":")[0] == self.selected)
        text = " ".join(own)
        told = alert is not None and alert.is_open and all(word in text for word in clean(alert.summary).split())
        return alert_sentence(state, self.selected, told=told, advised=TO_DO in text)

    # ---- the subjects of keys ----

    def alerts(self) -> tuple[str, ...]:
        """The marked alerts, or else the one under the cursor. If `5 a` comes before
        the first draw, it is the first alert."""
        keys = self.lines.marks() or ([] if self.selected is None else [self.selected])
        if not keys and not self.lines.rows:
            keys = [one.id for one in open_alerts(self.state, self.sort, self.filter)[:1]]
        return tuple(key for key in keys if not key.startswith(SILENCE))

    def silence(self) -> str | None:
        """The id of the silence under the cursor."""
        key = self.selected
        return key.removeprefix(SILENCE) if key is not None and key.startswith(SILENCE) else None

    def is_markable(self, key: str) -> bool:
        return not key.startswith((SENTENCE, HEADING, SILENCE))

    def moment(self) -> Moment | None:
        return moment_of_alert(self.selected or "", self.state)

    def still_is(self, key: str, state: State) -> bool:
        return key in state.alerts

    def copy_text(self) -> str | None:
        """The id, as `trainmon-tui ack` takes it."""
        return None if self.selected is None else self.selected.removeprefix(SILENCE)


def alert_sentence(state: State, key: str | None, *, told: bool = False, advised: bool = False) -> tuple[str, str]:
    """A sentence about a row, and its style. A broken channel comes first. `told`: the row has the whole summary;
    `advised`: and what to do."""
    failing = broken_channels(state.channels.values())
    if failing:
        name, kind, why = failing[0].name, failing[0].type, failing[0].problem or "it delivers nothing"
        return clean(f"channel {name} ({kind}) is broken: {why}"), "crit"
    silence = state.silences.get((key or "").removeprefix(SILENCE))
    if silence is not None:
        return clean(f"muted: {silence_text(silence)}"), "dim"
    alert = state.alerts.get(key or "")
    if alert is None:
        return "", "dim"
    parts = (  # each is cleaned apart: a \r takes what is before it
        clean(alert.rule) + ("" if told else f": {clean(alert.summary)}"),
        f"stale data: {clean(alert.data_why)}" if alert.data != "ok" and alert.data_why else "",
        clean(alert.advice) if alert.advice and alert.is_open and not advised else "",
    )
    is_bad = status_of(alert, state.at) == "open" and alert.severity != "info"
    style = "dim" if not is_bad else "crit" if alert.severity == "critical" else "warn"
    return "; ".join(part for part in parts if part), style
