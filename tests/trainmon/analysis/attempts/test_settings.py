"""Which settings have changed between two attempts, by W&B or by their config files."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from hashlib import sha256

from msgspec.structs import replace

from trainmon.analysis.attempts import changed_settings, merged, with_file
from trainmon.analysis.attempts.fold import with_named
from trainmon.analysis.attempts.provenance import AT_MOST, settings_of, with_wandb
from trainmon.analysis.explanation import AttemptRecords, explain, page
from trainmon.model import Attempt, FileContent, WandbRun

ATTEMPT = Attempt(attempt_id="prod/88.0", run_id="llm", cluster="prod", job_id="88", started_at=10.0)
NEXT = replace(ATTEMPT, attempt_id="prod/88.1", restart=1, started_at=20.0)


def logged(attempt: Attempt, config: Mapping[str, str], commit: str | None = None) -> Attempt:
    """The attempt with a W&B run that has this config."""
    return with_wandb(
        attempt, WandbRun(entity="t", project="p", id="a", name="a", state="running", config=config, commit=commit)
    )


def with_config(attempt: Attempt, text: str) -> Attempt:
    """The attempt whose config file was read."""
    named = with_named(attempt, "config", {"config_path": "/fsx/c.yaml"})
    digest = sha256(text.encode()).hexdigest()
    content = FileContent(1, 0.0, f"config_path {attempt.attempt_id}", "/fsx/c.yaml", sha256=digest, text=text)
    return with_file(named, content, 0.0, 0.0)


def changes(before: Attempt, after: Attempt) -> list[tuple[str, str | None, str | None]]:
    return [(one.name, one.before, one.after) for one in changed_settings(before, after)]


def test_explain_names_the_settings_that_have_changed_and_no_secret() -> None:
    before = logged(ATTEMPT, {"lr": "0.1", "model.layers": "8", "wandb_api_key": "a" * 40, "seed": "1"})
    after = logged(NEXT, {"lr": "0.2", "model.layers": "8", "wandb_api_key": "b" * 40, "warmup": "9"})
    assert changes(before, after) == [("lr", "0.1", "0.2"), ("seed", "1", None), ("warmup", None, "9")]
    one = explain(after, AttemptRecords(attempts=(before, after)))
    (config,) = [section for section in page(one) if section.title == "Config and data"]
    shown = [row.text for row in config.rows]
    assert [text for text in shown if "before:" in text][1:] == [
        "lr: 0.2; before: 0.1", "seed: not set; before: 1", "warmup: 9; before: not set",
    ]  # fmt: skip
    assert not any("aaaa" in text or "bbbb" in text for text in (str(before), *shown))


def test_without_wandb_the_config_files_are_compared() -> None:
    before = with_config(ATTEMPT, "train: {batch: 8, lr: 1e-4}\napi_token: abcdefgh12345678")
    after = with_config(NEXT, "# halved\ntrain: {batch: 4, lr: 1e-4}\napi_token: zyxwvuts87654321")
    assert changes(before, after) == [("train.batch", "8", "4")]
    assert changes(before, logged(after, {"lr": "0.1"})) == changes(before, after), "the files are compared"
    assert changes(logged(before, {"lr": "0.1"}), with_config(NEXT, "[1, 2]")) == [], "one of them is not known"


def test_of_settings_that_are_too_many_only_those_that_both_have_are_compared() -> None:
    many = {f"layer.{number:05}": "x" * 90 for number in range(2_000)}
    stored = settings_of(many)
    assert sum(map(len, (*stored.values, *stored.values.values()))) <= AT_MOST
    assert stored.left_out == len(many) - len(stored.values) > 0
    before, after = logged(ATTEMPT, many), logged(NEXT, {"layer.00003": "y", "zebra": "1"})
    assert changes(before, after) == [("layer.00003", "x" * 90, "y")]


def test_the_receipt_counts_before_wandb_and_slurm_before_the_receipt() -> None:
    wandb = logged(ATTEMPT, {"lr": "0.1"}, commit="f00d")
    receipt = with_named(ATTEMPT, "receipt", {"git_commit": "c0ffee", "command": "zzz train.py"})
    slurm = with_named(ATTEMPT, "scheduler", {"command": "/fsx/train.sh"})
    for parts in itertools.permutations((wandb, receipt, slurm)):
        both = functools.reduce(merged, parts)
        assert (both.git_commit, both.command) == ("c0ffee", "/fsx/train.sh")
    assert merged(wandb, slurm).git_commit == "f00d"
    assert merged(wandb, receipt).command == "zzz train.py"
