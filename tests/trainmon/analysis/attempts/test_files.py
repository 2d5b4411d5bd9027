"""The files that a run names, its config and the manifest of its data, identify what each attempt trains with."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, Story, ended
from trainmon.analysis.attempts import files_to_read
from trainmon.analysis.attempts.provenance import config_hash, settings_in
from trainmon.model import (
    AttemptsRestored,
    FileContent,
    FileSpec,
    NodeReading,
    OwnProcess,
    RunSpec,
    WandbRun,
    WandbSpec,
)

MANIFEST = replace(SPEC, data_manifest="/fsx/m.json")
CONFIG = replace(SPEC, config="/fsx/c.yaml")
NAME = "prod/88.0@20231114T221220"


def read(story: Story, seconds: float, *, stand_in: bool = False, **facts: Any) -> Story:
    """The host reads the first requested file."""
    story.at(seconds)
    [requested] = files_to_read(story.state)["prod"]
    known: dict[str, Any] = {"id": requested.id, "path": requested.pattern, "size": 3, "mtime": BEGIN - 5}
    if "error" not in facts:
        known["sha256"] = "ab" * 32
    content = FileContent(1, story.now, **known | facts)
    return story.say(NodeReading("login1", "prod", story.now, content, is_stand_in=stand_in))


def test_a_manifest_is_requested_when_the_attempt_begins_until_it_was_read() -> None:
    story = Story(MANIFEST)
    assert files_to_read(story.state) == {}
    story.queue(10, JOB)
    assert files_to_read(story.state) == {"prod": (FileSpec(f"data_manifest {NAME}", "/fsx/m.json"),)}
    assert story.attempt.data_manifest == "/fsx/m.json"
    read(story, 12)
    assert story.attempt.data_manifest == "/fsx/m.json sha256:abababababab"
    assert files_to_read(story.queue(40, JOB).state) == {}
    again = replace(JOB, restarts=1, submitted_at=BEGIN + 60, started_at=BEGIN + 70)
    [requested] = files_to_read(story.queue(80, again).state)["prod"]
    assert requested.id.startswith("data_manifest prod/88.1@")


def test_a_version_is_no_file_and_is_not_requested() -> None:
    assert files_to_read(Story(replace(SPEC, data_manifest="v7")).queue(10, JOB).state) == {}


def test_a_file_of_one_line_is_shown_as_its_content() -> None:
    story = read(Story(MANIFEST).queue(10, JOB), 12, text="v2026-11 token=abcdef0123456789\n")
    assert story.attempt.data_manifest == "/fsx/m.json: v2026-11 token=***"
    story = read(Story(MANIFEST).queue(10, JOB), 12, text="two\nlines\n")
    assert story.attempt.data_manifest == "/fsx/m.json sha256:abababababab"


def test_a_glob_is_named_by_the_file_that_matches() -> None:
    story = read(Story(replace(SPEC, data_manifest="/fsx/m*.json")).queue(10, JOB), 12, path="/fsx/m3.json")
    assert story.attempt.data_manifest == "/fsx/m3.json sha256:abababababab"


def test_a_file_that_cannot_be_read_is_missing_and_requested_until_it_can() -> None:
    story = read(Story(MANIFEST).queue(10, JOB), 12, error="no permission", path=None)
    assert story.attempt.data_manifest is None
    assert (story.attempt.files["data_manifest"].path, story.attempt.files["data_manifest"].error) == (
        "/fsx/m.json", "no permission",
    )  # fmt: skip
    assert read(story, 60).attempt.data_manifest == "/fsx/m.json sha256:abababababab"


def test_a_stand_in_that_does_not_find_the_file_proves_nothing() -> None:
    story = read(Story(MANIFEST).queue(10, JOB), 12, error="does not exist", path=None, stand_in=True)
    assert story.attempt.data_manifest == "/fsx/m.json"
    assert files_to_read(story.state)


def test_without_a_host_that_reads_files_the_path_is_all_that_is_known() -> None:
    assert Story(MANIFEST).queue(10, JOB).queue(500, JOB).attempt.data_manifest == "/fsx/m.json"


def test_what_was_read_before_a_restart_of_trainmon_counts() -> None:
    stored = read(Story(MANIFEST).queue(10, JOB), 12).attempt
    story = Story(MANIFEST, watched_from=500.0).queue(505, JOB)
    read(story, 507, sha256="cd" * 32)
    story.say(AttemptsRestored((stored,)))
    assert story.attempt.data_manifest == "/fsx/m.json sha256:abababababab"


def test_an_attempt_that_ended_within_seconds_is_read_shortly_after() -> None:
    story = Story(MANIFEST).queue(10, JOB).queue(20, ended(JOB, 15, "FAILED", "1:0")).at(70).say()
    assert not story.attempt.is_open
    assert read(story, 75).attempt.data_manifest == "/fsx/m.json sha256:abababababab"
    later = Story(MANIFEST).queue(10, JOB).queue(20, ended(JOB, 15, "FAILED", "1:0")).at(300).say()
    assert files_to_read(later.state) == {}


def test_the_config_file_gives_the_hash_that_wandb_does_not() -> None:
    story = read(Story(CONFIG).queue(10, JOB), 12, text="train:\n  batch: 8\n")
    one = story.attempt
    assert (one.config_path, one.config_hash) == (
        "/fsx/c.yaml",
        config_hash(settings_in("/fsx/c.yaml", "train: {batch: 8}") or {}),
    )
    story = read(Story(replace(SPEC, config="/fsx/run.sh")).queue(10, JOB), 12, text="lr=1\n")
    assert story.attempt.config_hash == "abababababab"


def test_the_settings_of_wandb_count_more_than_the_file() -> None:
    spec = replace(CONFIG, wandb=WandbSpec(project="t/p", group="g"))
    wandb = WandbRun(
        entity="t", project="p", id="abc", name="x", state="running", created_at=BEGIN + 5, heartbeat_at=BEGIN + 20,
        config={"lr": "0.1"},
    )  # fmt: skip
    story = read(Story(spec).queue(10, JOB), 12, text="lr: 1")
    by_file = story.attempt.config_hash
    assert by_file not in (None, story.wandb(25, wandb).attempt.config_hash)


@pytest.mark.parametrize(
    ("command", "workdir", "path"),
    [
        ("/fsx/train.sh --config /fsx/c.yaml", None, "/fsx/c.yaml"),
        ("/fsx/train.sh --config=c.yaml", "/fsx/exp", "/fsx/exp/c.yaml"),
        ("/fsx/train.sh --cfg ~/c.yaml", "/fsx/exp", "~/c.yaml"),
        ("/fsx/train.sh --config c.yaml", None, None),
        ("/fsx/train.sh", "/fsx/exp", None),
    ],
)
def test_the_command_line_names_the_config(command: str, workdir: str | None, path: str | None) -> None:
    story = Story().queue(10, replace(JOB, command=command, workdir=workdir))
    assert [one.pattern for one in files_to_read(story.state).get("prod", ())] == ([] if path is None else [path])


def test_a_config_of_the_run_counts_more_than_one_of_the_command_line() -> None:
    story = Story(CONFIG).queue(10, replace(JOB, command="/fsx/train.sh --config /fsx/other.yaml"))
    assert [one.pattern for one in files_to_read(story.state)["prod"]] == ["/fsx/c.yaml"]
    assert story.attempt.config_path == "/fsx/c.yaml"


def test_the_config_of_a_process_is_below_its_working_directory() -> None:
    process = OwnProcess(pid=4711, command="python train.py --config c.yaml", workdir="/fsx/exp")
    spec = RunSpec(name="llm", cluster="prod", log="/fsx/88.out", nodes=("n1",), process=process, found=True)
    story = Story(spec, slurm=False).gpus(1)
    assert [one.pattern for one in files_to_read(story.state)["prod"]] == ["/fsx/exp/c.yaml"]


@pytest.mark.parametrize(
    ("path", "one", "other"),
    [
        ("c.yaml", "a: {b: 1, c: [1, 2]}", "# a comment\na:\n  c:\n  - 1\n  - 2\n  b: 1\n"),
        ("c.json", '{"a": 1, "b": null}', '{\n "b": null, "a": 1}'),
        ("c.toml", "a = 1\nb = 2", "b = 2\na = 1 # one"),
    ],
)
def test_the_hash_is_one_of_values_not_of_comments_and_order(path: str, one: str, other: str) -> None:
    assert settings_in(path, one) == settings_in(path, other)
    assert settings_in(path, one) != settings_in(path, one.replace("1", "3"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("c.yaml", "a: [1"),
        ("c.json", "{"),
        ("c.toml", "a ="),
        ("c.py", "a = 1"),
        ("c.yaml", ""),
        ("c.json", "[" * 9999),
    ],
)
def test_what_is_no_settings_has_no_hash_of_settings(path: str, text: str) -> None:
    assert settings_in(path, text) is None


def test_references_to_references_do_not_take_forever() -> None:
    bomb = "a0: &a0 [[], []]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 60))
    assert settings_in("c.yaml", bomb) is None


def test_of_many_files_those_that_cannot_be_read_come_last() -> None:
    jobs = [replace(JOB, id=str(number), number=number, name="llm") for number in range(100, 200)]
    story = Story(MANIFEST).queue(10, *jobs)
    requested = files_to_read(story.state)["prod"]
    assert len(requested) == 64
    failed = FileContent(1, story.now, requested[0].id, error="no permission")
    story.say(NodeReading("login1", "prod", story.now, failed))
    assert requested[0] not in files_to_read(story.state)["prod"]
