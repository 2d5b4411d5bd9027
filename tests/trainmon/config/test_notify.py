"""[[notify]] in the config: what is read, and each mistake in its own words."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from trainmon.config.decode import decode
from trainmon.config.notify import CHANNEL_TYPES, ChannelSettings
from trainmon.config.types import InvalidValue, resolve_secret
from trainmon.lib.field_docs import field_descriptions

NTFY = '[[notify]]\ntype = "ntfy"\ntopic = "env:TOPIC"\n'
HOOK = '[[notify]]\ntype = "webhook"\nurl = "env:HOOK"\n'

MISTAKES = {
    "no-type": ('[[notify]]\nname = "x"', '[[notify]] #1 (x): "type" is missing: it names the channel type'),
    "type-no-text": (
        "[[notify]]\ntype = 3",
        '[[notify]] #1: "type" must be a channel type in quotes, not the number 3',
    ),
    "type-like-one": (
        '[[notify]]\ntype = "ntfi"',
        '[[notify]] #1 (ntfi): "type" is "ntfi", which is not a channel type; did you mean "ntfy"?',
    ),
    "type-of-apprise": (
        '[[notify]]\ntype = "slack"',
        '[[notify]] #1 (slack): "type" is "slack", which is not a channel type; the types are '
        f"{', '.join(CHANNEL_TYPES)} (for all others)",
    ),
    "setting-like-one": (
        NTFY + "pictres = true",
        '[[notify]] #1 (ntfy): unknown setting "pictres"; did you mean "pictures"?',
    ),
    "setting-of-another-type": (
        HOOK + 'topic = "x"',
        '[[notify]] #1 (webhook): unknown setting "topic"; the settings are '
        "type, name, severity, after, runs, rules, resolved, heartbeat, fallback, per_day, url, headers",
    ),
    "own-is-no-setting": (
        '[[notify]]\ntype = "desktop"\nown = 3',
        '[[notify]] #1 (desktop): unknown setting "own"; the settings are '
        "type, name, severity, after, runs, rules, resolved, heartbeat, fallback, per_day",
    ),
    "no-topic": ('[[notify]]\ntype = "ntfy"', '[[notify]] #1 (ntfy): "topic" is missing'),
    "no-command": ('[[notify]]\ntype = "command"', '[[notify]] #1 (command): "command" is missing'),
    "bad-topic": (
        '[[notify]]\ntype = "ntfy"\ntopic = "hunter2/x"',
        '[[notify]] #1 (ntfy): "topic" must have 1 to 64 characters: letters, digits, - and _',
    ),
    "bad-server": (
        NTFY + 'server = "ntfy.hunter2.org"',
        '[[notify]] #1 (ntfy): "server" must be a URL such as "https://host/path"',
    ),
    "bad-url": (
        '[[notify]]\ntype = "webhook"\nurl = "https://hunter2 x"',
        '[[notify]] #1 (webhook): "url" must be a URL such as "https://host/path"',
    ),
    "bad-apprise-url": (
        '[[notify]]\ntype = "apprise"\nurl = "hunter2"',
        '[[notify]] #1 (apprise): "url" must be a URL of apprise, such as "slack://…" or "mailto://…"',
    ),
    "bad-call": (
        NTFY + 'call = "0049 30"',
        '[[notify]] #1 (ntfy): "call" must be "yes" or a phone number such as "+4930123456", not "0049 30"',
    ),
    "bad-severity": (
        NTFY + 'severity = "fatal"',
        '[[notify]] #1 (ntfy): "severity" must be "critical", "warning" or "info", not "fatal"',
    ),
    "bad-after": (
        NTFY + "after = 5",
        '[[notify]] #1 (ntfy): "after" needs a unit: "5s" or "5m", not the bare number 5',
    ),
    "bad-header": (
        HOOK + 'headers = { "X Y" = "a" }',
        '[[notify]] #1 (webhook): "headers" has "X Y", which is not an HTTP header name',
    ),
    "bad-header-value": (
        HOOK + 'headers = { A = "env:1" }',
        '[[notify]] #1 (webhook): "headers" has a "A" that must name a variable after "env:", such as "env:NTFY_TOPIC"',
    ),
    "headers-no-table": (
        HOOK + 'headers = "A: hunter2"',
        '[[notify]] #1 (webhook): "headers" must be a table of strings such as { Authorization = "env:HOOK_LOGIN" }',
    ),
    "name-twice": (NTFY + NTFY, '[[notify]] #2 (ntfy): [[notify]] #1 already uses the name "ntfy"; set "name"'),
    "token-and-user": (
        NTFY + 'token = "env:A"\nuser = "ann"\npassword = "env:B"',
        '[[notify]] #1 (ntfy): "token" is enough to log in; remove "user" and "password"',
    ),
    "alertmanager-with-token-and-user": (
        '[[notify]]\ntype = "alertmanager"\nurl = "http://am:9093"\ntoken = "env:A"\nuser = "ann"',
        '[[notify]] #1 (alertmanager): "token" is enough to log in; remove "user" and "password"',
    ),
    "alertmanager-with-a-user-alone": (
        '[[notify]]\ntype = "alertmanager"\nurl = "http://am:9093"\nuser = "ann"',
        '[[notify]] #1 (alertmanager): "password" is missing: "user" and "password" go together',
    ),
    "user-alone": (
        NTFY + 'user = "ann"',
        '[[notify]] #1 (ntfy): "password" is missing: "user" and "password" go together',
    ),
    "answers-in-its-own-topic": (
        NTFY + 'reply_topic = "env:TOPIC"',
        '[[notify]] #1 (ntfy): "reply_topic" must differ from "topic": notifications would be read as replies',
    ),
    "unknown-run": (
        '[[run]]\nname = "video-2b"\n' + NTFY + 'runs = ["video-2c"]',
        '[[notify]] #1 (ntfy): "runs" has "video-2c", which is not a run; did you mean "video-2b"?',
    ),
    "nobody-at-once": (
        NTFY + 'after = "5m"\n' + HOOK + "fallback = true",
        'every [[notify]] has "fallback" or "after"; at least one must have neither, to notify at once',
    ),
}


def problems(text: str) -> list[str]:
    return decode(tomllib.loads(text), "trainmon.toml")[1]


@pytest.mark.parametrize(("text", "problem"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_has_its_own_sentence(text: str, problem: str) -> None:
    assert problems(text) == [f"trainmon.toml: {problem}"]
    assert "hunter2" not in problem


def test_a_rule_that_is_not_there_is_reported_with_the_nearest() -> None:
    (problem,) = problems(NTFY + 'rules = ["gpu-hto"]')
    assert problem == (
        'trainmon.toml: [[notify]] #1 (ntfy): "rules" has "gpu-hto", which is not a rule; did you mean "gpu-hot"?'
    )


def test_one_channel_may_be_a_plain_table() -> None:
    settings, _ = decode(tomllib.loads('[notify]\ntype = "desktop"'), "trainmon.toml")
    assert settings is not None
    assert [entry.label for entry in settings.notify] == ["desktop"]


# ---- where secrets are


def test_a_secret_is_from_the_environment_a_file_or_the_config(tmp_path: Path) -> None:
    (tmp_path / "topic").write_text("from-file\n")
    assert resolve_secret("env:TOPIC", {"TOPIC": " from-environment\n"}) == "from-environment"
    assert resolve_secret(f"file:{tmp_path}/topic", {}) == "from-file"
    assert resolve_secret("plain", {}) == "plain"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "names a file that does not exist"),
        (b" \n", "names a file that is empty"),
        (b"\xff\xfe", "names a file that is not text"),
        (b"x" * 70_000, "names a file that is too large for a secret"),
        (b"hunter2\nhunter3", "contains control characters; a secret must be one line"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused_with_a_message(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(InvalidValue) as caught:
        resolve_secret(f"file:{tmp_path}/secret", {})
    assert str(caught.value) == words


def test_a_directory_is_no_secret(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="names a file that cannot be read: is a directory"):
        resolve_secret(f"file:{tmp_path}", {})


def test_the_documents_name_every_channel_type() -> None:
    named = re.findall(r"`(\w+)`", field_descriptions(ChannelSettings)["type"])
    assert sorted(named) == sorted(CHANNEL_TYPES)
