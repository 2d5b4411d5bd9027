"""`check`, of the config's files: who else can read a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmon.cli.check.command import permission_rows
from trainmon.config.load import load


def rows(config: Path, text: str, mode: int) -> list[tuple[str, str]]:
    config.write_text(text)
    config.chmod(mode)
    return [(row.text, row.fix) for row in permission_rows(load(config), config)]


NTFY = '[[notify]]\ntype = "ntfy"\ntopic = "{}"\n'


def test_a_topic_file_that_others_can_read(tmp_path: Path) -> None:
    topic, config = tmp_path / "my topic", tmp_path / "c.toml"
    topic.write_text("k3v9x2ab4f\n")
    topic.chmod(0o644)
    assert rows(config, NTFY.format(f"file:{topic}"), 0o644) == [
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
    for table in (alertmanager, '[cluster]\n[[cluster.metrics]]\nurl = "http://prom:9090"\n'):
        assert len(rows(config, table + 'token = "hunter2-hunter2"\n', 0o644)) == 1
        assert len(rows(config, table + 'user = "me"\npassword = "hunter2-hunter2"\n', 0o644)) == 1


TOKEN, PASSWORD, HEADERS = 'token = "{}"', 'user = "me"\npassword = "{}"', 'headers = {{ a = "b", Login = "{}" }}'
TABLES = {
    '[[notify]]\ntype = "alertmanager"\nurl = "http://a:9093"\n': (TOKEN, PASSWORD),
    '[[notify]]\ntype = "ntfy"\ntopic = "env:TOPIC"\n': (TOKEN, PASSWORD),
    '[[notify]]\ntype = "webhook"\nurl = "env:TOPIC"\n': (HEADERS,),
    '[cluster]\n[[cluster.metrics]]\nurl = "http://prom:9090"\n': (TOKEN, PASSWORD, HEADERS),
}


@pytest.mark.parametrize(("table", "setting"), [(table, one) for table, settings in TABLES.items() for one in settings])
def test_a_secret_is_found_wherever_a_table_has_one(
    table: str, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPIC", "k3v9x2ab4f" if "ntfy" in table else "http://k3v9x2ab4f")
    secret, config = tmp_path / "secret", tmp_path / "c.toml"
    secret.write_text("glsa_9f8e7d6c5b4a3210\n")
    secret.chmod(0o640)
    text = table + setting.format(f"file:{secret}") + "\n"
    note = (f"other users can read {secret} (mode 640), and it is a secret", f"chmod go-rwx {secret}")
    assert rows(config, text, 0o600) == [note]
    secret.chmod(0o600)
    assert rows(config, text, 0o600) == []


def test_without_a_file_and_with_one_that_is_gone_there_is_nothing_to_say(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    assert rows(config, NTFY.format(f"file:{tmp_path}/none"), 0o600) == []
    assert list(permission_rows(load(config), None)) == []
