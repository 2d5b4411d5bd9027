"""What the palette finds: everything by its name, and an action by its verb alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from string import ascii_lowercase

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard
from tests.tui.states import alerts as alert_states
from tests.tui.states import states
from tests.tui.states import wandb as wandb_states
from trainmon.model import State
from tui.app import Dashboard
from tui.keys import ACTS, CONTEXTS, KEYS, NAMES, footer, footer_acts
from tui.screens.help import TITLES
from tui.style import Link
from tui.views.actions import ALSO, PANES, UNNAMED, Command, commands, find_commands, names_of

VERB_NAMES = tuple(name for key in KEYS if key.scope in ACTS for name in names_of(key))


def everything() -> State:
    """Runs with and without W&B, nodes, jobs of every kind, alerts in every phase."""
    queued, alarmed = states.queued(), alert_states.alarmed()
    runs = {**queued.runs, **alarmed.runs, **wandb_states.wandb().runs}
    return msgspec.structs.replace(queued, runs=runs, alerts=alarmed.alerts)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app() -> AsyncIterator[Dashboard]:
    dash = dashboard(FakeBackend(everything()))
    async with running(dash, size=(120, 40)) as pilot:
        await at_rest(pilot)
        yield dash


def offered_by(app: Dashboard, place: str) -> list[Command]:
    return commands(place, app.shown, app.theme_names())


def first(query: str, offered: list[Command]) -> Command:
    hits = find_commands(query, offered)
    assert hits, f"nothing is called {query}"
    return hits[0]


def leads_to_an_action(query: str, offered: list[Command]) -> bool:
    hits = find_commands(query, offered)
    return bool(hits) and hits[0].kind == "act"


PANE_OF = {
    "runs": "1", "run": "1", "training": "1", "gpus": "2", "gpu": "2", "nodes": "2", "node": "2", "hosts": "2",
    "disk": "3", "disks": "3", "df": "3", "log": "4", "logs": "4", "alerts": "5", "alert": "5", "w&b": "6",
    "wandb": "6", "metrics": "6", "charts": "6", "loss": "6", "queue": "7", "jobs": "7", "job": "7", "squeue": "7",
}  # fmt: skip
"""What fingers type that know k9s, btop, nvitop and Slurm."""


@pytest.mark.parametrize("place", CONTEXTS)
async def test_every_pane_and_screen_is_found_by_its_name_from_everywhere(app: Dashboard, place: str) -> None:
    offered = offered_by(app, place)

    for name, number in (*PANE_OF.items(), *((title, number) for number, title in NAMES.items())):
        assert (first(name, offered).kind, first(name, offered).cap) == ("pane", number), name
    for title in set(TITLES.values()) - {"Help", "Queue, nodes", "Changes", "Moment", "Attempt", "Report"}:
        assert first(title, offered).kind == "pane", title
    assert (first("Report", offered).kind, first("Report", offered).target) == ("report", Link("report", ""))


@pytest.mark.parametrize("place", ["runs", "alerts", "alert"])
async def test_the_screens_that_a_key_opens_are_found_by_their_name(app: Dashboard, place: str) -> None:
    offered = offered_by(app, place)

    assert [first(title, offered).cap for title in ("Changes", "Moment")] == ["u", "o"]


@pytest.mark.parametrize("place", CONTEXTS)
async def test_every_word_of_the_footer_is_found(app: Dashboard, place: str) -> None:
    offered = offered_by(app, place)
    panes = {name for command in offered if command.kind == "pane" for name in command.names}

    for key in (*footer(place), *footer_acts(place)):
        matches = find_commands(key.short, offered)
        hits = [hit for hit in matches if not (hit.kind == "pane" and key.short.lower() in panes)]
        assert (hits[0].cap, hits[0].text) == (key.cap, key.text), key.short


async def test_every_run_node_job_alert_and_theme_is_found_by_its_name(app: Dashboard) -> None:
    offered = offered_by(app, "runs")
    named = {
        "run": [*app.shown.runs],
        "node": [*app.shown.nodes, *app.shown.scheduler_nodes],
        "job": [job.id for job in app.shown.jobs.values()],
        "alert": [*app.shown.alerts],
        "theme": [*app.available_themes],
    }

    for kind, names in named.items():
        assert names
        for name in names:
            assert first(name, offered).kind == kind, name
            assert first(f"{kind} {name}", offered) is first(name, offered)
            assert name in first(name.upper(), offered).text


@pytest.mark.parametrize(
    ("typed", "cap"),
    [("help", "?"), ("?", "?"), ("quit", "q"), ("q", "q"), ("exit", "q"), ("pause", "p"), ("refresh", "r"),
     ("sort", "s"), ("filter", "/"), ("login", "L"), ("zoom", "z"), ("acknowledge", "a"), ("silence", "m")],
)  # fmt: skip
async def test_what_fingers_know_leads_to_its_key(app: Dashboard, typed: str, cap: str) -> None:
    assert first(typed, offered_by(app, "runs")).cap == cap


@pytest.mark.parametrize("typed", ["theme", "themes", "colours", "colors"])
async def test_theme_leads_to_the_choice_of_the_colours(app: Dashboard, typed: str) -> None:
    assert first(typed, offered_by(app, "runs")).text == "choose the theme"


# ---- actions ----


def is_verb_prefix(query: str) -> bool:
    return any(name.startswith(query) for name in VERB_NAMES)


async def test_no_short_word_leads_to_an_action_but_the_start_of_its_verb(app: Dashboard) -> None:
    offered = offered_by(app, "queue")
    texts = "\n".join("\n".join((*command.names, command.text.casefold())) for command in offered)
    short = {"".join(letters) for length in (1, 2) for letters in product(ascii_lowercase, repeat=length)}
    short |= {texts[at : at + length] for length in (3, 4) for at in range(len(texts))}

    assert [word for word in short if not is_verb_prefix(word.strip()) and leads_to_an_action(word, offered)] == []


@given(st.text(ascii_lowercase, min_size=1, max_size=4) | st.text(min_size=1, max_size=12))
async def test_an_action_fits_the_start_of_its_verb_and_nothing_else(typed: str) -> None:
    acts = [Command("act", key.text, names_of(key), "", key.cap) for key in KEYS if key.scope in ACTS]
    query = " ".join(typed.casefold().split())

    expected = {act.cap for act in acts if any(name.startswith(query) for name in act.names)}
    assert {act.cap for act in find_commands(typed, acts)} == (expected if query else {act.cap for act in acts})


async def test_an_action_comes_last_until_its_verb_is_written_out(app: Dashboard) -> None:
    offered = offered_by(app, "runs")

    for start in ("k", "s", "c", "r", "u", "h"):
        kinds = [hit.kind for hit in find_commands(start, offered)]
        assert kinds[0] != "act" == kinds[-1], start
        assert kinds == sorted(kinds, key=lambda kind: kind == "act"), start
    assert first("kill", offered).cap == "K"
    assert first("drain", offered_by(app, "queue")).cap == "X"


async def test_what_an_action_does_or_is_about_never_finds_it(app: Dashboard) -> None:
    offered = offered_by(app, "queue")

    for typed in ("switch", "drop", "exits", "job", "emergency", "checkpoint", "usr1", "armed", "node", "waiting",
                  "ill", "ancel", "llm-70b kill", "kill llm-70b"):  # fmt: skip
        assert "act" not in {hit.kind for hit in find_commands(typed, offered)}, typed


async def test_a_run_that_is_called_like_an_action_comes_before_it(app: Dashboard) -> None:
    offered = [Command("act", "kill", ("kill",), ""), Command("run", "kill", ("kill", "run kill"), "")]
    offered.reverse()

    assert [hit.kind for hit in find_commands("kill", offered)] == ["run", "act"]


# ---- how well a word fits ----


def named(*names: str) -> list[Command]:
    return [Command("run", name, (name,), "") for name in names]


@pytest.mark.parametrize(
    ("typed", "hits"),
    [
        ("llm", ["llm", "llm-7b", "big-llm", "xllmx"]),
        ("7b", ["llm-7b"]),
        ("big llm", ["big-llm"]),
        ("  LLM-7B ", ["llm-7b"]),
        ("lm7", []),
        ("zzz", []),
    ],
)
async def test_a_name_comes_before_its_beginning_before_a_word_before_any_part(typed: str, hits: list[str]) -> None:
    assert [hit.text for hit in find_commands(typed, named("xllmx", "big-llm", "llm-7b", "llm"))] == hits


def test_the_tables_of_names_are_about_keys_and_panes_that_exist() -> None:
    ids = {key.id: key for key in KEYS}

    assert PANES.keys() == NAMES.keys()
    assert ALSO.keys() | UNNAMED <= ids.keys()
    assert {key.id for key in KEYS if key.scope in ACTS} <= ALSO.keys()
