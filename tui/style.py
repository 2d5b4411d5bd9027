"""Numbers, ages and states as short texts with a style, the symbols of the screen, and rows of such texts. Pure.

Panes always write the first form of a symbol. `themes.Ascii` replaces it on the last step before the terminal, one
cell for one cell, so that columns stay where they are and no pane has to know. `snapshot` prints numbers without
Textual, which is not imported here.

`?` is not known, `-` does not apply, `·` is no GPU there. Widths are those of plain text; panes do the padding.
"""

from __future__ import annotations

import locale
import logging
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from trainmon import lib
from trainmon.lib import DAY, HOUR, MINUTE, Instant, Seconds, cell_width, clean
from trainmon.model import Alert, Disk, Gpu, Source, State, Verdict
from tui.keys import cap

log = logging.getLogger(__name__)

# ---- the symbols of the screen, and their replacements on terminals that show only ASCII -----------------------------

OK = "●"
WARN = "◆"
CRIT = "▲"
DEAD = "✗"
WAITING = "◌"
PAUSED = "◐"
DONE = "✓"
MUTED = "◇"
INFO = "i"
CURSOR = "›"
MARKED = "+"
MORE = "…"
DOT = "·"
UP = "↑"
DOWN = "↓"

TO_ASCII: dict[str, str] = {
    OK: "*", WARN: "w", CRIT: "!", DEAD: "X", WAITING: "o", PAUSED: "~", DONE: "v", MUTED: "m", CURSOR: ">", MORE: "~",
    DOT: ".", UP: "^", DOWN: "v", "→": ">", "←": "<", "↗": "/", "↘": "\\", "°": " ", "µ": "u", "×": "x", "–": "-",
    "—": "-", "≤": "<", "≥": ">", "“": '"', "”": '"', "‘": "'", "’": "'", "•": "*", "∞": "-", "■": "#", "□": ".",
    "▌": "#", "─": "-", "━": "-", "│": "|", "┃": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "┌": "+", "┐": "+",
    "└": "+", "┘": "+", "├": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+", "╴": "-", "╶": "-", "╵": "|", "╷": "|",
}  # fmt: skip
"""The ASCII form of every symbol and line that we draw."""

HEIGHTS = "▁▂▃▄▅▆▇█"
"""The bars of a small curve, from the least to the greatest value."""

BLOCKS = "▉▊▋▍▎▏▀▐▔▕"
_TABLE = str.maketrans(TO_ASCII | dict.fromkeys(BLOCKS, "#") | dict(zip(HEIGHTS, "_.:-=+*#", strict=True)))


@lru_cache(4096)
def ascii_text(text: str) -> str:
    """The text in ASCII, with the same width. A character without an ASCII form becomes `?`."""
    text = text.translate(_TABLE)
    if text.isascii():
        return text
    from rich.cells import cell_len

    return "".join(char if char.isascii() else "?" * cell_len(char) for char in text)


def wants_ascii(environ: Mapping[str, str], encoding: str | None = None) -> bool:
    """Whether to stay in ASCII: TRAINMON_ASCII=1 (0 refuses it), else a locale that is not UTF-8, or a bare console."""
    value = environ.get("TRAINMON_ASCII", "")
    if value:
        return value != "0"
    if environ.get("TERM") in {"dumb", "vt100", "vt220"}:
        return True
    encoding = encoding or locale.getencoding()
    return encoding.replace("-", "").lower() != "utf8"


# ---- times -----------------------------------------------------------------------------------------------------------


class Times:
    """The zone of all times on the screens: UTC, or None for the local time of this machine. One person sets it."""

    zone: tzinfo | None = UTC


def wall_clock(at: Instant) -> datetime:
    """A time as the screens show it."""
    return datetime.fromtimestamp(at, UTC).astimezone(Times.zone)


UTC_TIME = re.compile(r"(?:(\d{4}-\d\d-\d\d|[A-Z][a-z]{2} \d\d) )?(\d\d:\d\d(:\d\d)?) UTC\b")


def in_zone(text: str, near: Instant) -> str:
    """A sentence that names times of UTC, as the screens show times. `near`: a time of its day, where it names none, or
    of its year."""

    def shown(found: re.Match[str]) -> str:
        day, time, seconds = found.groups()
        now = datetime.fromtimestamp(near, UTC)
        date = f"{now:%Y-%m-%d}" if day is None else day
        if day is not None and "-" not in day:
            date = f"{datetime.strptime(f'{now.year} {day} +0000', '%Y %b %d %z'):%Y-%m-%d}"
        form = "" if day is None else "%Y-%m-%d " if day == date else "%b %d "
        at = datetime.fromisoformat(f"{date}T{time}+00:00").astimezone(Times.zone)
        return at.strftime(f"{form}{'%H:%M:%S' if seconds else '%H:%M'} %Z")

    return text if Times.zone is UTC else UTC_TIME.sub(shown, text)


# ---- numbers, ages and states as short texts with a style ------------------------------------------------------------

UNKNOWN = "?"
NOT_APPLICABLE = "-"

HOT_MARGIN, WARM_MARGIN = 0, 5
"""Degrees to the GPU's own slowdown."""

HOT_C, WARM_C = 90, 85
"""Limits for drivers without that margin (before Hopper). Data-centre GPUs of that time slow down at 87 to 95 °C."""

VERDICTS: Mapping[Verdict, tuple[str, str]] = {
    "healthy": (OK, "ok"),
    "starting": (WAITING, "accent"),
    "evaluating": (PAUSED, "ok"),
    "saving": (PAUSED, "accent"),
    "stalled": (WARN, "warn"),
    "hung": (CRIT, "crit"),
    "data-stall": (WARN, "warn"),
    "diverged": (CRIT, "crit"),
    "dead": (DEAD, "crit"),
    "stopped": (DEAD, "dim"),
    "finished": (DONE, "dim"),
    "queued": (WAITING, "dim"),
    "idle": (DOT, "dim"),
    "unknown": (UNKNOWN, "dim"),
}
"""The symbol and style of each verdict. The verdict itself is shown beside it where it fits."""


class Span(NamedTuple):
    """A piece of one line: plain text, never markup, and the name of its style."""

    text: str
    style: str = ""


def pad(text: str, width: int) -> str:
    """The text, padded with spaces on the right to at least `width` cells."""
    return text + " " * (width - cell_width(text))


# ---- numbers -------------------------------------------------------------------------------------------------------


def count(value: int | None) -> str:
    """12,880."""
    return UNKNOWN if value is None else f"{value:,}"


def short(value: float | None) -> str:
    """1.9M, 412k, 87: at most four cells."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return lib.short_number(value, 2)


def mib(value: int | None) -> str:
    """MiB in a column of a table: 78G, 512M."""
    return lib.short_size(None if value is None else value * 1_048_576.0)


def percent(part: float | None, whole: float | None) -> str:
    """39%. Only nothing is 0%, and only all is 100%."""
    if part is None or not whole:
        return UNKNOWN
    share = 100.0 * part / whole
    return "1%" if 0 < share < 1 else "99%" if 99 < share < 100 else f"{share:.0f}%"


def real(value: float | None, digits: int = 3) -> str:
    """A loss or a gradient norm: 2.113, 0.31, 1.2e+05, nan."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return short(value)
    return f"{value:.1e}" if value and not 0.001 <= abs(value) < 100_000 else f"{value:.{digits}f}"


# ---- time ----------------------------------------------------------------------------------------------------------


def age(seconds: Seconds | None) -> str:
    """An age: 6s, 11m, 2h, 3d. A time in the future has the age 0s."""
    if seconds is None:
        return UNKNOWN
    if seconds < MINUTE:
        return f"{max(0, int(seconds))}s"
    if seconds < HOUR:
        return f"{int(seconds // MINUTE)}m"
    return f"{int(seconds // HOUR)}h" if seconds < 2 * DAY else f"{int(seconds // DAY)}d"


def calm_age(seconds: Seconds) -> str:
    """Like `age`, but in steps of ten seconds: ages that change every second are most of an idle screen's traffic."""
    return age(seconds - seconds % 10 if 10 <= seconds < MINUTE else seconds)


def since(then: Instant | None, now: Instant) -> str:
    """The age of something last seen at `then`."""
    return UNKNOWN if then is None else age(now - then)


def duration(seconds: Seconds | None) -> str:
    """How long something takes: 0.31s, 4.1s, 52s, 45m, 3h10m, 4d6h; `?` if it is not known."""
    return UNKNOWN if seconds is None else f"{seconds:.2f}s" if seconds < 0.995 else lib.duration(seconds)


def whole(seconds: Seconds | None) -> str:
    """Like `duration`, but in whole seconds up to 100: 5s, 70s, 45m, 3h10m."""
    return UNKNOWN if seconds is None else f"{int(seconds)}s" if seconds < 100 else duration(seconds)


def eta(at: Instant | None, now: Instant) -> str:
    """The duration until an instant; `-` without one."""
    return NOT_APPLICABLE if at is None else duration(max(0.0, at - now))


FULL_SOON, FULL_LATER = 6 * HOUR, 2 * DAY


def full_in(at: Instant | None, now: Instant) -> Span:
    """The time until a disk is full at its current rate: 5h, 2d, >30d; `-` if it does not fill up."""
    if at is None:
        return Span(NOT_APPLICABLE, "dim")
    left = max(0.0, at - now)
    if left > 30 * DAY:
        return Span(">30d", "dim")
    text = age(left)
    if left < FULL_SOON:
        return Span(text + "!", "crit")
    return Span(text + "!", "warn") if left < FULL_LATER else Span(text)


# ---- GPUs ----------------------------------------------------------------------------------------------------------

_BENIGN = frozenset({"idle", "app_clocks", "sw_power_cap", "sync_boost", "display"})
"""Normal clock reasons: a training GPU at its power limit always reports sw_power_cap."""


@lru_cache(512)
def slowing(throttle: tuple[str, ...]) -> tuple[str, ...]:
    """The clock reasons that are a problem."""
    return tuple(reason for reason in throttle if reason not in _BENIGN)


def heat(gpu: Gpu) -> str:
    """`crit` at the GPU's slowdown temperature, `warn` within 5 degrees of it; by fixed limits if it is unknown and
    not one of AMD."""
    throttle, margin, degrees = gpu.throttle, gpu.temperature_margin_c, gpu.temperature_c
    if throttle and "hw_thermal" in throttle:
        return "crit"
    if margin is not None:
        return "crit" if margin <= HOT_MARGIN else "warn" if margin <= WARM_MARGIN else ""
    if degrees is None or gpu.is_amd:
        return ""
    return "crit" if degrees >= HOT_C else "warn" if degrees >= WARM_C else ""


# ---- sources and disks ---------------------------------------------------------------------------------------------


def source_text(source: Source, now: Instant, server: Source | None = None, *, hinted: bool = False) -> Span:
    """The status of a source that is late or unreachable: its error or what it waits for, and since when. `server`: the
    failing Prometheus server that has its numbers; `hinted`: its hint, which names the key of a login, follows."""
    error = source.problem
    if (source.phase == "held" or (source.phase == "off" and error is not None)) and source.can_log_in:
        press = f"press {cap('act.login')}"
        needed = "login needed" if hinted and source.hint else f"login needed: {press}"
        title = needed if source.phase == "held" else f"{press} to log in"
        return Span(title + (f" ({error})" if error else ""), "warn")
    seen = "" if source.answered_at is None else f" {calm_age(now - source.answered_at)}"
    if error is not None:
        return Span(f"late{seen}: {error}" if seen else error, "warn" if source.phase == "off" else "crit")
    if source.phase == "held":
        return Span("login refused", "crit")
    if source.health == "off":
        return Span("not watched", "dim")
    if source.phase in ("waiting", "connecting", "retrying") and source.answered_at is None:
        waits = "waiting to connect" if source.via is None else f"waiting for {_server_text(server)}"
        return Span(waits if source.phase == "waiting" else source.phase, "dim")
    why = f": {_server_text(server)}" if server is not None else ""
    return Span(f"{'reconnecting' if source.phase in ('connecting', 'retrying') else 'late'}{seen}{why}", "dim")


def _server_text(server: Source | None) -> str:
    """`Prometheus: no answer within 10s`."""
    return "Prometheus" if server is None else f"Prometheus: {server.problem}"


def inodes_used(disk: Disk) -> float | None:
    """The used share of a disk's inodes, 0 to 1; None if their number is not fixed."""
    return 1.0 - disk.free_inodes / disk.total_inodes if disk.total_inodes and disk.free_inodes is not None else None


def bytes_used(disk: Disk) -> float | None:
    """The used share of a disk's bytes, 0 to 1."""
    return 1.0 - disk.free_bytes / disk.total_bytes if disk.total_bytes and disk.free_bytes is not None else None


# ---- alerts ------------------------------------------------------------------------------------------------------


def ended_how(alert: Alert) -> str:
    """How it ended: `resolved`, or why it ended without that."""
    return "resolved" if alert.ended in (None, "", "over") else alert.ended


def remarks(alert: Alert, state: State) -> list[Span]:
    """Its remarks, the most important first: `ack ana`, `muted 43m`, `inhibited by node-unreachable`."""
    if not alert.is_open:
        return [Span(clean(ended_how(alert), 60), "dim")]
    by = state.alerts.get(alert.inhibited_by or "")
    inhibited = "inhibited" if by is None else clean(f"inhibited by {by.rule}", 60)
    muted_for = (alert.muted_until or 0.0) - state.at
    texts = (
        ("pending" if alert.phase == "pending" else "", "dim"),
        (inhibited if alert.inhibited_by is not None else "", "dim"),
        (f"muted {lib.ago(muted_for)}" if muted_for > 0 else "", "accent"),
        ("" if alert.acknowledged_by is None else clean(f"ack {alert.acknowledged_by}", 40), "accent"),
        ({"ok": "", "stale": "stale data"}.get(alert.data, "data error"), "warn"),
        ("recovering" if alert.phase == "recovering" else "", "dim"),
        ("flapping" if alert.flapping else "", "warn"),
    )
    return [Span(text, style) for text, style in texts if text]


# ---- rows of spans ---------------------------------------------------------------------------------------------------

SENTENCE = "\0"
"""Prefix of the keys of text rows, which show no cursor. No name can begin so."""

HEADING = "\1"
"""Prefix of the keys of heading rows, which never hold the cursor: no key press has a meaning there."""


@dataclass(slots=True)
class Row:
    """One screen line. The key identifies its subject, whatever its position. It may be laid out when it is first seen:
    of 300 nodes, a screen shows 30."""

    key: str
    shown: tuple[Span, ...] | Callable[[], tuple[Span, ...]]

    @property
    def spans(self) -> tuple[Span, ...]:
        if callable(self.shown):
            try:
                self.shown = self.shown()
            except (
                Exception
            ) as error:  # of one row; it may have been scrolled into sight, where nothing else catches it
                log.exception("row %s failed", self.key)
                self.shown = (Span(f"  {self.key} cannot be drawn: {type(error).__name__}: {error}", "warn"),)
        return self.shown

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


def width_of(spans: Iterable[Span]) -> int:
    """Terminal cells that spans take: a wide character takes two."""
    from rich.cells import cell_len

    return sum(cell_len(span.text) for span in spans)


# ---- lines with links ------------------------------------------------------------------------------------------------

LinkKind = Literal["run", "job", "node", "log", "wandb", "alert", "disk", "attempt", "report", "changes"]

Line = tuple[Span, ...]

_SIGN = ">"
"""Prefix of the keys of linked rows. The other rows are numbered."""


class Link(NamedTuple):
    """The target of a link: a run or node by name (`gpu-014/6`: one of its GPUs), a job by key, a run's log or W&B
    charts, an alert or attempt by id, the report of a run (empty: of all), a disk by the key of its row."""

    kind: LinkKind
    name: str


class Linked(NamedTuple):
    """A line with a link."""

    link: Link
    spans: Line


def rows(lines: Iterable[Line | Linked]) -> list[Row]:
    """Lines as rows. The cursor stays on its link when lines above it change."""
    found: list[Row] = []
    taken: set[Link] = set()
    for number, line in enumerate(lines):
        if isinstance(line, Linked) and line.link not in taken:
            taken.add(line.link)
            found.append(Row(f"{_SIGN}{line.link.kind}:{line.link.name}", line.spans))
        else:
            found.append(Row(str(number), line.spans if isinstance(line, Linked) else line))
    return found


def link_of(key: str | None) -> Link | None:
    """The link of the row with this key."""
    kind, colon, name = (key or "").removeprefix(_SIGN).partition(":")
    if key is None or not key.startswith(_SIGN) or not colon:
        return None
    return next((Link(known, name) for known in get_args(LinkKind) if kind == known), None)


def first_link(shown: Iterable[Row]) -> str | None:
    """The key of the first row with a link."""
    return next((row.key for row in shown if link_of(row.key) is not None), None)


SENTENCE_LINES = 6


def sentence(text: str, width: int, style: str = "") -> Iterator[Line]:
    """A sentence, wrapped, without a label."""
    for line in textwrap.wrap(text, max(8, width), break_on_hyphens=False)[:SENTENCE_LINES]:
        yield (Span(line, style),)
