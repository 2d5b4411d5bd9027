"""The key table: one meaning a key and place, and everything that reads it agrees."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs import keys as keys_table
from trainmon.lib import ConfigError
from tui.keys import (
    ACTS,
    CONTEXTS,
    FOOTER_AT_MOST,
    KEYS,
    Key,
    active_keys,
    bindings,
    changed_keys,
    clashes,
    footer,
    footer_acts,
)
from tui.widgets import GUTTER, KeyedLines, chosen, fitting, foot_spans, placed
from tui.widgets.footer import key_width


def test_no_key_means_two_things_in_one_place() -> None:
    assert clashes() == []


def test_a_clash_names_the_place_the_key_and_both_actions() -> None:
    kill = Key("l", "act.kill", "kill", "stop the run", "main", "act", "l")

    log = "show the selected run's log on the full screen"
    (clash, *_) = clashes((*KEYS, kill))
    assert clash.startswith(f'"act.kill" has the key of "view.log" ({log}): l in runs, gpus, disk')


def test_a_key_that_only_closes_may_be_any_key() -> None:
    close = Key("p", "help.shut", "screen.back", "close", "help", "move", "p")

    assert clashes((*KEYS, close)) == []


def test_every_key_has_an_id_of_its_own() -> None:
    ids = [key.id for key in KEYS]

    assert len(ids) == len(set(ids))
    assert all(binding.id for scope in {key.scope for key in KEYS} for binding in bindings(scope))


def test_lower_case_looks_and_upper_case_changes() -> None:
    capitals = {name for key in KEYS for name in key.keys.split(",") if len(name) == 1 and name.isupper()}

    looks = {name for key in KEYS if key.scope not in ACTS for name in key.keys.split(",") if name in capitals}

    assert looks == {"G", "L", "N"}, "G goes to the end, N to previous match in a log, L logs in"
    assert capitals - {"G", "L"} == set("SKURCHTNX")


def test_where_a_key_acts_it_is_a_capital_and_x_lists_them_all() -> None:
    acts = {name: key.action for key in KEYS if key.scope in ACTS for name in key.keys.split(",")}

    assert acts.pop("x") == "screen.menu"
    assert all(name.isupper() and do.startswith("screen.act(") for name, do in acts.items())


def test_nothing_acts_in_a_log_where_capital_n_searches() -> None:
    for place in ("log", "log-screen", "disk", "help"):
        assert not set(CONTEXTS[place]) & set(ACTS), place


def test_escape_and_the_keys_of_multiplexers_never_act() -> None:
    taken = {name: key for key in KEYS for name in key.keys.split(",")}

    assert taken["escape"].action == "screen.back"
    assert not taken.keys() & {"ctrl+a", "ctrl+s", "ctrl+o"}
    assert (taken["ctrl+b"].action, taken["ctrl+z"].action) == ("page(-1)", "app.suspend_process")


def test_no_place_has_more_than_nine_keys_in_its_footer_and_help_is_always_there() -> None:
    for place in CONTEXTS:
        shown = footer(place)

        assert len(shown) <= FOOTER_AT_MOST, place
        assert "app" not in CONTEXTS[place] or "app.help" in {key.id for key in shown}, place


def test_a_narrow_footer_keeps_help_commands_and_quit() -> None:
    shown = fitting(footer("runs"), 40)

    assert [key.short for key in shown][-3:] == ["Help", "Commands", "Quit"]
    assert sum(key_width(key) + 2 for key in shown) - 2 <= 40


def test_the_footer_of_a_small_terminal_keeps_what_cannot_be_guessed() -> None:
    small = 79

    for place in ("runs", "gpus", "queue", "node", "run", "job"):
        assert "Open" in {key.short for key in chosen(place, small)}, place
    for place in ("queue", "gpus"):
        assert "View" in {key.short for key in chosen(place, small)}, place
    assert {key.short for key in chosen("queue", 119)} > {"Filter", "Sort", "View", "Open", "Save", "Kill"}


def test_enter_is_offered_only_where_it_opens_something() -> None:
    assert "lines.choose" in {key.id for key in active_keys("node")}
    assert "lines.choose" in {key.id for key in active_keys("disk")}
    assert "lines.choose" not in {key.id for key in active_keys("log")}
    (enter,) = [line for line in keys_table().splitlines() if "open what is under the cursor" in line]
    assert "Disk" in enter
    assert "W&B" not in enter
    (alone,) = [key.text for key in active_keys("wandb") if "enter" in key.keys.split(",")]
    assert "only this chart" in alone


def test_a_click_on_the_footer_finds_the_key_that_is_written_there() -> None:
    keys = footer("gpus")
    line = " " * GUTTER + "".join(span.text for span in foot_spans(keys, "zoomed"))

    for key, _, start in placed(keys, "zoomed"):
        assert line[start:].startswith(f"{key.cap} {key.short}")


def test_the_footer_keeps_what_acts_apart_from_what_looks() -> None:
    for place in CONTEXTS:
        assert not set(footer(place)) & set(footer_acts(place)), place

    assert [key.cap for key in footer_acts("runs")] == ["x", "S", "K", "R", "C"]
    assert [key.cap for key in footer_acts("gpus")] == ["x", "X"]
    assert footer_acts("log") == ()


def test_the_list_of_rows_handles_the_keys_that_the_table_promises() -> None:
    promised = {name for key in KEYS if key.scope in {"list", "moves"} for name in key.keys.split(",")}
    active_keys = {name for binding in KeyedLines.BINDINGS for name in binding.key.split(",")}  # type: ignore[union-attr]

    assert active_keys == promised


def test_the_words_of_every_key_fit_the_help_of_a_small_terminal() -> None:
    assert [key.id for key in KEYS if len(key.text) > 55] == []


def test_the_readme_table_has_a_line_for_every_key() -> None:
    assert len(keys_table().splitlines()) == len(KEYS) + 2


# ---- other keys by the config ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"view.zoom": ["q"]}, '"view.zoom" has the key of "app.quit" (quit; training continues): q in runs'),
        ({"view.zom": ["Z"]}, '"view.zom" is not an action; did you mean "view.zoom"?'),
        ({"app.back": ["x"]}, '"app.back" cannot be changed; see docs/reference/keys.md'),
        ({"view.zoom": ["Z", "hyper"]}, '"view.zoom": there is no key "hyper"'),
        ({"plan.left": ["ctrl+q"]}, '"plan.left" has the key of "app.leave" (quit; training continues): ctrl+q'),
        ({"view.log": ["s"]}, '"view.log" has the key of "view.sort" (sort the rows): s in runs'),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_used_is_refused_by_name_with_the_file(changes: dict[str, list[str]], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        changed_keys(changes, "trainmon.toml")

    assert refused.value.problems[0].startswith(f"trainmon.toml: [keys]: {why}")


CHANGED = """
import asyncio
from tui.keys import changed_keys, use_keys
changes = {"view.zoom": ["Z"], "view.sort": ["ctrl+t", "S"], "act.save": ["s"], "app.help": ["f2"]}
use_keys(changed_keys(changes, "trainmon.toml"))
from tests.tui.dashboard import showing
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states.states import troubled

async def main():
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        foot = text_of(app).splitlines()[-1]
        assert "Ctrl+T S Sort" in foot and "Z Zoom" in foot and "f2" not in foot and "F2 Help" in foot, foot
        await pilot.press("z")
        await at_rest(pilot)
        assert not app.main.zoomed
        await pilot.press("Z")
        await at_rest(pilot)
        assert app.main.zoomed and "zoomed; Z restores" in text_of(app)
        await pilot.press("ctrl+t", "j", "enter", "S", "enter")
        await at_rest(pilot)
        assert app.main.runs.sort == "-name"
        await pilot.press("x")
        await at_rest(pilot)
        assert " s     Save" in text_of(app).replace("›", " "), text_of(app)
        await pilot.press("escape", "f2")
        await at_rest(pilot)
        assert "  Ctrl+T S    sort the rows" in text_of(app), text_of(app)

asyncio.run(main())
"""


def test_changed_keys_work_and_the_footer_the_help_the_menu_and_sentences_show_them() -> None:
    """In a process of its own: the classes of the screens have their bindings from their import on."""
    done = subprocess.run([sys.executable, "-c", CHANGED], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr[-2_000:]
