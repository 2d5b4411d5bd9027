"""`check`, of the config's files: who else can read a secret, or write a command into the config."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmon.cli.check.permissions import permission_rows
from trainmon.config.load import load


def rows(config: Path, text: str, mode: int) -> list[tuple[str, str]]:
    config.write_text(text)
    config.chmod(mode)
    return [(row.text, row.fix) for row in permission_rows(load(config), config)]


NTFY = '[[notify]]\ntype = "ntfy"\ntopic = "{}"\n'


def test_a_topic_file_that_others_can_read_and_a_config_that_others_can_write(tmp_path: Path) -> None:
    topic, config = tmp_path / "my topic", tmp_path / "c.toml"
    topic.write_text("k3v9x2ab4f\n")
    topic.chmod(0o644)
    assert rows(config, NTFY.format(f"file:{topic}"), 0o666) == [
        (f"other users can write to {config} (mode 666), and a config may contain commands", f"chmod go-w {config}"),
        (f"other users can read {topic} (mode 644), and it is a secret", f"chmod go-rwx '{topic}'"),
    ]
    topic.chmod(0o600)
    assert rows(config, NTFY.format(f"file:{topic}"), 0o644) == []


def test_a_secret_in_a_config_that_others_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "c.toml"
    monkeypatch.setenv("TOPIC", "k3v9x2ab4f")
    found = rows(config, NTFY.format("k3v9x2ab4f"), 0o644)
    assert found == [(f"other users can read {config} (mode 644), and it contains secrets", f"chmod go-rwx {config}")]
    assert rows(config, NTFY.format("k3v9x2ab4f"), 0o600) == []
    assert rows(config, NTFY.format("env:TOPIC"), 0o644) == []
    hook = '[[notify]]\ntype = "webhook"\nurl = "env:TOPIC"\nheaders = { Login = "hunter2-hunter2" }\n'
    assert len(rows(config, hook, 0o644)) == 1


def test_the_token_of_prometheus_is_a_secret_and_the_address_of_alertmanager_is_none(tmp_path: Path) -> None:
    token, config = tmp_path / "token", tmp_path / "c.toml"
    token.write_text("glsa_9f8e7d6c5b4a3210\n")
    token.chmod(0o644)
    metrics = f'[cluster]\nmetrics = {{ url = "http://prom:9090", token = "file:{token}" }}\n'
    fix = f"chmod go-rwx {token}"
    assert rows(config, metrics, 0o644) == [(f"other users can read {token} (mode 644), and it is a secret", fix)]
    alertmanager = '[[notify]]\ntype = "alertmanager"\nurl = "http://127.0.0.1:9093"\n'
    assert rows(config, alertmanager, 0o644) == []
    assert len(rows(config, alertmanager.replace("//", "//me:hunter2@"), 0o644)) == 1
    assert len(rows(config, alertmanager + 'token = "hunter2-hunter2"\n', 0o644)) == 1


def test_without_a_file_and_with_one_that_is_gone_there_is_nothing_to_say(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    assert rows(config, NTFY.format(f"file:{tmp_path}/none"), 0o600) == []
    assert list(permission_rows(load(config), None)) == []
