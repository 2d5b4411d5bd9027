"""What changed since the previous attempt: its config, its data, its command, and where each is known from."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN
from tests.trainmon.analysis.explanation.pages import explained, named, rows, story
from trainmon.analysis.attempts import missing
from trainmon.analysis.attempts.fold import with_named
from trainmon.model import AttemptFile, Evidence
from trainmon.model.attempts import Confidence


def test_what_changed_since_the_previous_attempt_is_named() -> None:
    first, second = story()
    attempts = (
        replace(first, config_hash="aaa", git_commit="f00"),
        replace(second, config_hash="bbb", git_commit="c0ffee"),
    )
    one = explained(attempts, 1)
    assert [(change.field, change.before, change.after) for change in one.changes] == [
        ("config_hash", "aaa", "bbb"), ("git_commit", "f00", "c0ffee"), ("nodes", ("n1",), ("n2",)),
    ]  # fmt: skip
    assert rows(one, "Config")[:2] == [("config", "bbb"), ("", "changed; before: aaa")]
    assert rows(one, "Config")[-1] == ("changed", "since attempt 88: config, git commit, nodes")
    unread = explained((attempts[0], replace(attempts[1], config_hash=None, nodes=())), 1)
    assert rows(unread, "Config")[:2] == [("config", "not known"), ("config file", "not known")]
    assert rows(unread, "Config")[-2:] == [
        ("changed", "since attempt 88: git commit"),
        ("not compared", "config, nodes: known of only one of the two attempts"),
    ]
    unchanged = rows(explained(story(nodes=("n1",)), 1), "Config")
    assert unchanged[-1] == ("changed", "no recorded change since attempt 88")
    assert rows(explained(story()), "Config")[-1] == ("changed", "No earlier attempt is known.")


def test_the_files_of_config_and_data_are_shown_with_their_age() -> None:
    first, _ = story()
    config = AttemptFile(path="/fsx/c.yaml", read_at=BEGIN + 5, size=1234, modified_at=BEGIN - 60, sha256="a" * 64)
    config = replace(config, settings_hash="b" * 12)
    data = AttemptFile(path="/fsx/m.json", read_at=BEGIN + 5, size=2_000_000, modified_at=BEGIN + 70, sha256="c" * 64)
    shown = rows(explained((named(first, config_path=config, data_manifest=data),)), "Config")
    assert shown[:3] == [
        ("config", "b" * 12 + ", the hash of its config file"),
        ("config file", "/fsx/c.yaml"),
        ("", "1.2 KiB, changed 2023-11-14 22:12:20 UTC, read 5s after the start"),
    ]
    assert shown[5:8] == [
        ("data", "/fsx/m.json sha256:cccccccccccc"),
        ("", "1.9 MiB, changed 2023-11-14 22:14:30 UTC, read 5s after the start"),
        ("", "It was changed after the start: the attempt may have read what it was before."),
    ]


def test_a_file_that_cannot_be_read_is_missing_and_the_reason_is_shown() -> None:
    first, _ = story()
    data = AttemptFile(path="/fsx/m.json", read_at=BEGIN + 5, error="no permission")
    config = replace(data, path="/fsx/c.yaml")
    attempt = named(first, data_manifest=data, config_path=config)
    assert attempt.data_manifest is None
    assert "data_manifest" in missing(attempt)
    one = explained((attempt,))
    shown = rows(one, "Config")
    assert ("", "/fsx/m.json cannot be read: no permission") in shown
    assert ("", "/fsx/c.yaml cannot be read: no permission") in shown
    checks = rows(one, "Traceability")
    assert ("config", "✗ Let trainmon-tui read the config: /fsx/c.yaml cannot be read: no permission.") in checks
    assert ("data", "✗ Let trainmon-tui read the manifest: /fsx/m.json cannot be read: no permission.") in checks


@pytest.mark.parametrize(("confidence", "how"), [("high", "prove"), ("low", "suggest")])
def test_facts_of_a_cause_that_is_not_certain_only_suggest_it(confidence: Confidence, how: str) -> None:
    end = story()[0].end
    assert end is not None
    assert end.cause is not None
    cause = replace(end.cause, confidence=confidence, evidence=(Evidence(text="signal 9"),))
    attempt = replace(story()[0], end=replace(end, cause=cause, log_tail="step 4"))
    text = f"These are the last lines. The facts {how} the cause."
    assert rows(explained((attempt,)), "Evidence")[-2] == ("", text)


def test_values_that_contradict_each_other_are_shown() -> None:
    first, _ = story()
    attempt = with_named(with_named(first, "wandb", {"data_manifest": "v6"}), "environment", {"data_manifest": "v7"})
    shown = rows(explained((attempt,)), "Config")
    assert shown[shown.index(("data", "v7")) + 1] == ("", "from its environment, but W&B says v6")


def test_a_config_hash_by_wandb_and_one_by_the_file_are_not_compared() -> None:
    first, second = story()
    file = AttemptFile(path="/fsx/c.yaml", read_at=BEGIN, sha256="a" * 64, settings_hash="b" * 12)
    first = with_named(named(first, config_path=file), "wandb", {"config_hash": "w" * 12})
    second = named(second, config_path=file)
    assert (first.config_hash, second.config_hash) == ("w" * 12, "b" * 12)
    assert [change.field for change in explained((first, second), 1).changes] == ["nodes"]
    changed = named(second, config_path=replace(file, settings_hash="c" * 12))
    assert [change.field for change in explained((first, changed), 1).changes] == ["config_hash", "nodes"]


def test_a_batch_script_and_the_command_in_it_are_not_compared() -> None:
    first, second = (replace(one, named={}) for one in story())
    first = with_named(first, "receipt", {"command": "python train.py"})
    script = with_named(second, "scheduler", {"command": "/fsx/train.slurm"})
    both = with_named(script, "receipt", {"command": "python train.py"})
    for other in (script, both):
        assert [change.field for change in explained((first, other), 1).changes] == ["nodes"]
    changed = with_named(script, "receipt", {"command": "python train.py --lr 1"})
    [command, _] = explained((first, changed), 1).changes
    assert (command.before, command.after) == ("python train.py", "python train.py --lr 1")
