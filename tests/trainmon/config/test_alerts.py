"""[[rule]], [alerts], [heartbeat], [daemon] and [[maintenance]]: what they become, and every mistake in its words."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmon.alerting.rules import RULES
from trainmon.config.load import load
from trainmon.config.schema import (
    HeartbeatSettings,
    MaintenanceSettings,
    heartbeat_of,
    routing_of,
    rules_of,
    windows_of,
)
from trainmon.config.types import parse_size, value_type
from trainmon.lib import ConfigError
from trainmon.model import Route

HOUR = 3_600.0
MONDAY = dt.datetime(2031, 5, 5, 12, 0, tzinfo=dt.UTC).timestamp()


def loaded(folder: Path, text: str) -> Path:
    file = folder / "trainmon.toml"
    file.write_text(text)
    return file


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(loaded(folder, text))
    return [problem.removeprefix(f"{folder}/") for problem in raised.value.problems]


@pytest.fixture(autouse=True)
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_rule_is_set_where_it_is_named_and_all_others_stay(tmp_path: Path) -> None:
    text = '[[rule]]\ntype = "gpu-hot"\nfor = "0s"\nmargin_c = 8\n[[rule]]\ntype = "finished"\nenabled = false\n'
    settings = load(loaded(tmp_path, text + '[[rule]]\ntype = "slow-throughput"\ndrop = "35%"\nseverity = "info"\n'))
    rules = {rule.name: rule for rule in rules_of(settings.rules)}
    assert list(rules) == [rule.name for rule in RULES]
    hot, slow = rules["gpu-hot"], rules["slow-throughput"]
    assert (hot.for_, getattr(hot, "margin_c", None), hot.keep_firing_for) == (0.0, 8, type(hot)().keep_firing_for)
    assert (getattr(slow, "drop", None), slow.severity) == (0.35, "info")
    assert [rule.name for rule in rules.values() if not rule.enabled] == ["finished"]
    assert rules["run-dead"] == type(rules["run-dead"])()


def test_the_old_names_of_rule_settings_are_still_read(tmp_path: Path) -> None:
    text = '[[rule]]\ntype = "gpu-hot"\n{} = "2m"\n{} = "3m"\n{} = "30s"\n'
    old, new = (
        load(loaded(tmp_path, text.format(*names))).rules
        for names in (("hold", "keep", "critical_hold"), ("for", "keep_firing_for", "critical_for"))
    )
    assert old == new
    (hot,) = (rule for rule in rules_of(old) if rule.name == "gpu-hot")
    assert (hot.for_, hot.keep_firing_for, getattr(hot, "critical_for", None)) == (120.0, 180.0, 30.0)


def test_every_setting_of_every_rule_can_be_written_in_a_config() -> None:
    import msgspec

    for rule in RULES:
        for field in msgspec.structs.fields(rule):
            assert value_type(field.type).description, f"{rule.name}.{field.name}"


MISTAKES = {
    "unknown-rule": (
        '[[rule]]\ntype = "gpu-hut"\n',
        '[[rule]] #1 (gpu-hut): "type" is "gpu-hut", which is not a rule; did you mean "gpu-hot"?',
    ),
    "unknown-rule-like-no-other": (
        '[[rule]]\ntype = "zzz"\n',
        '[[rule]] #1 (zzz): "type" is "zzz", which is not a rule; `trainmon-tui rules` lists them',
    ),
    "no-type": ('[[rule]]\nhold = "1m"\n', '[[rule]] #1: "type" is missing: it names the rule'),
    "type-of-another-type": (
        "[[rule]]\ntype = 3\n",
        '[[rule]] #1: "type" must be the name of a rule in quotes, not the number 3',
    ),
    "unknown-setting": (
        '[[rule]]\ntype = "gpu-hot"\nmargins_c = 3\n',
        '[[rule]] #1 (gpu-hot): unknown setting "margins_c"; did you mean "margin_c"?',
    ),
    "a-setting-of-another-rule": (
        '[[rule]]\ntype = "loss-nan"\nmargin_c = 3\n',
        '[[rule]] #1 (loss-nan): unknown setting "margin_c"; '
        "the settings are type, enabled, for, keep_firing_for, severity, steps",
    ),
    "a-bare-number": (
        '[[rule]]\ntype = "gpu-hot"\nhold = 5\n',
        '[[rule]] #1 (gpu-hot): "hold" needs a unit: "5s" or "5m", not the bare number 5',
    ),
    "a-bare-number-by-its-new-name": (
        '[[rule]]\ntype = "gpu-hot"\nfor = 5\n',
        '[[rule]] #1 (gpu-hot): "for" needs a unit: "5s" or "5m", not the bare number 5',
    ),
    "a-setting-by-both-names": (
        '[[rule]]\ntype = "gpu-hot"\nfor = "5m"\nhold = "5m"\n',
        '[[rule]] #1 (gpu-hot): "hold" is the old name of "for"; remove one of them',
    ),
    "no-share": (
        '[[rule]]\ntype = "slow-throughput"\ndrop = "120%"\n',
        '[[rule]] #1 (slow-throughput): "drop" must be a share from "0%" to "100%", not "120%"',
    ),
    "no-severity": (
        '[[rule]]\ntype = "gpu-hot"\nseverity = "red"\n',
        '[[rule]] #1 (gpu-hot): "severity" must be "critical", "warning" or "info", not "red"',
    ),
    "the-table-of-settings": (
        '[[rule]]\ntype = "loss-nan"\nsettings = { steps = 3 }\n',
        '[[rule]] #1 (loss-nan): unknown setting "settings"; '
        "the settings are type, enabled, for, keep_firing_for, severity, steps",
    ),
    "one-rule-twice": (
        '[[rule]]\ntype = "gpu-hot"\n[[rule]]\ntype = "gpu-hot"\nhold = "1m"\n',
        "[[rule]] #2 (gpu-hot): [[rule]] #1 already sets this rule; put all settings in one table",
    ),
    "neither-a-time-nor-never": (
        '[alerts]\nrepeat = "sometimes"\n',
        '[alerts]: "repeat" must be a duration such as "2s", "15m" or "1h30m", not "sometimes"; or "never"',
    ),
    "no-beginning": (
        '[[maintenance]]\nfor = "1h"\n',
        '[[maintenance]] #1: the start is missing: set "from" for a single window, or "at" for a recurring one',
    ),
    "two-beginnings": (
        '[[maintenance]]\nfrom = 2031-05-01T08:00:00Z\nat = "08:00"\nfor = "1h"\n',
        '[[maintenance]] #1: "from" is for a single window; remove "at"',
    ),
    "no-end": ('[[maintenance]]\nname = "m"\nat = "08:00"\n', '[[maintenance]] #1 (m): "for" is missing'),
    "no-day": (
        '[[maintenance]]\nat = "8:00"\nfor = "1h"\ndays = ["tuesday"]\n',
        '[[maintenance]] #1: "days" has "tuesday"; the days are mon, tue, wed, thu, fri, sat, sun',
    ),
    "no-time-of-day": (
        '[[maintenance]]\nat = "25:00"\nfor = "1h"\n',
        '[[maintenance]] #1: "at" must be a time of day such as "08:30", not "25:00"',
    ),
    "no-moment": (
        '[[maintenance]]\nfrom = "tomorrow"\nfor = "1h"\n',
        '[[maintenance]] #1: "from" must be a date and time without quotes such as 2031-05-01T08:00:00, not "tomorrow"',
    ),
    "no-such-rule": (
        '[[maintenance]]\nat = "08:00"\nfor = "1h"\nrule = "gpu-hut"\n',
        '[[maintenance]] #1: unknown rule "gpu-hut"; did you mean "gpu-hot"?',
    ),
    "no-such-run": (
        '[[run]]\nname = "video"\n[[maintenance]]\nat = "08:00"\nfor = "1h"\nrun = "vide"\n',
        '[[maintenance]] #1: unknown run "vide"; did you mean "video"?',
    ),
}


@pytest.mark.parametrize(("text", "problem"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_has_its_own_sentence(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == [f"trainmon.toml: {problem}"]


@pytest.mark.parametrize(
    ("text", "size"), [("50GB", 50 * 10**9), ("1.5 TiB", 3 * 2**39), ("0B", 0), ("7kB", 7_000), ("2PB", 2 * 10**15)]
)
def test_a_size_says_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", [50, "50", "50 gigabytes", "-1GB", "1e9B", None])
def test_a_size_without_a_unit_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r'must be a size such as "50GB" or "1\.5TiB", not '):
        parse_size(value)


# ---- signs of life, routes, windows ----------------------------------------------------------------------------------


def test_signs_of_life_come_by_themselves_and_may_be_left_out(tmp_path: Path) -> None:
    spec = heartbeat_of(HeartbeatSettings(), start=True)
    assert (spec.every, spec.test_every, spec.start) == (4 * HOUR, 7 * 24 * HOUR, True)
    settings = load(loaded(tmp_path, '[heartbeat]\nevery = "never"\ntest = "never"\nstart = false\n'))
    spec = heartbeat_of(settings.heartbeat, start=True)
    assert (spec.every, spec.test_every, spec.start) == (None, None, False)
    assert not heartbeat_of(HeartbeatSettings(), start=False).start


def test_what_is_configured_becomes_the_routing(tmp_path: Path) -> None:
    text = '[alerts]\nrepeat = "never"\n[[notify]]\ntype = "ntfy"\ntopic = "env:T"\nseverity = "critical"\n'
    settings = load(loaded(tmp_path, text + '[[maintenance]]\nat = "08:00"\nfor = "1h"\n'))
    made = routing_of(settings, MONDAY)
    assert made.routes == (Route(channel="ntfy", severity="critical"),)
    assert made.repeat == math.inf
    assert len(made.windows) >= 3


def local(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def test_a_window_that_happens_once_is_there_until_it_is_over(tmp_path: Path) -> None:
    text = '[[maintenance]]\nname = "new switch"\nfrom = 2031-05-05T16:00:00+02:00\nfor = "2h"\nnode = "gpu-1"\n'
    (entry,) = load(loaded(tmp_path, text)).maintenance
    (window,) = windows_of([entry], MONDAY)
    assert (window.made_at, window.until) == (local("2031-05-05T16:00"), local("2031-05-05T18:00"))
    assert (window.node, window.why, window.window, window.by) == ("gpu-1", "new switch", True, "the config")
    assert windows_of([entry], window.until) == ()


def test_a_window_that_comes_again_is_known_days_ahead_and_by_this_machines_clock() -> None:
    nights = MaintenanceSettings(at=(23, 30), lasts=2 * HOUR, days=(0, 5))
    found = windows_of([nights], MONDAY)
    assert [window.made_at for window in found] == [local("2031-05-05T23:30")]
    during = windows_of([nights], local("2031-05-06T00:30"))
    assert during[0].made_at == local("2031-05-05T23:30")
    assert len({window.id for window in during}) == len(during)
    after = windows_of([nights], local("2031-05-06T01:30"))
    assert local("2031-05-05T23:30") not in [window.made_at for window in after]


def test_a_daily_window_keeps_its_hour_when_the_clocks_change() -> None:
    daily = MaintenanceSettings(at=(8, 0), lasts=HOUR)
    found = windows_of([daily], local("2031-03-29T12:00"))
    assert local("2031-03-30T08:00") in [window.made_at for window in found]
    assert local("2031-03-30T08:00") - local("2031-03-29T08:00") == 23 * HOUR
