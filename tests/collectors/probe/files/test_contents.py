"""The files that identify what an attempt trains with: each is read once, whole, and without a trace."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from collectors.probe.files import contents
from collectors.probe.files.contents import Contents
from tests.collectors.probe.files.conftest import FOREIGN, ForeignLink
from tests.collectors.probe.wire import ManualClock, readings_of


def spec(pattern: Path | str, name: str = "data_manifest prod/88") -> dict[str, Any]:
    return {"files": [{"id": name, "pattern": str(pattern)}]}


def content(pattern: Path | str) -> Any:
    [found] = readings_of(Contents(spec(pattern)), slow=True)
    return found


def test_a_file_is_reported_with_its_path_size_time_and_hash(tmp_path: Path):
    manifest = tmp_path / "manifest.json"
    manifest.write_bytes(b"\x00\xff" * 100)
    os.utime(manifest, (1000, 5000.5))
    found = content(manifest)
    assert (found.id, found.path, found.size, found.mtime) == ("data_manifest prod/88", str(manifest), 200, 5000.5)
    assert (found.sha256, found.text) == (hashlib.sha256(b"\x00\xff" * 100).hexdigest(), None)
    assert manifest.stat().st_atime == 1000


def test_the_text_of_a_small_file_is_reported(tmp_path: Path):
    version = tmp_path / "VERSION"
    version.write_text("v7 é\n", "utf-8")
    assert content(version).text == "v7 é\n"
    version.write_bytes(b"x" * (contents.MAX_TEXT + 1))
    assert content(version).text is None


@pytest.mark.parametrize("system", ["Linux", "macOS"])
def test_a_link_of_our_own_is_followed_and_that_of_somebody_else_is_not(
    system: str, tmp_path: Path, foreign_link: ForeignLink, monkeypatch: pytest.MonkeyPatch
):
    if system == "macOS":
        monkeypatch.delattr(os, "O_PATH")
    (tmp_path / "v7").write_text("seven")
    (tmp_path / "VERSION").symlink_to("v7")
    assert (content(tmp_path / "VERSION").text, content(tmp_path / "VERSION").error) == ("seven", None)
    foreign_link(tmp_path / "status")
    (tmp_path / "latest").symlink_to("status")
    for name in ("status", "latest"):
        assert (content(tmp_path / name).text, content(tmp_path / name).error) == (None, FOREIGN)


def test_it_is_read_once_for_each_attempt(tmp_path: Path):
    config = tmp_path / "c.yaml"
    config.write_text("lr: 1")
    sense = Contents(spec(config))
    [first] = readings_of(sense, slow=True)
    config.write_text("lr: 2")
    assert readings_of(sense, slow=True) == []
    sense.configure(spec(config))
    assert readings_of(sense, slow=True) == []
    sense.configure(spec(config, "data_manifest prod/88.1"))
    [second] = readings_of(sense, slow=True)
    assert first.sha256 != second.sha256


def test_a_file_that_cannot_be_read_says_why_once_and_is_tried_again(tmp_path: Path):
    manifest = tmp_path / "no" / "manifest"
    sense = Contents(spec(manifest))
    [found] = readings_of(sense, slow=True)
    assert found.error == f"does not exist; the nearest existing parent is {tmp_path}"
    assert readings_of(sense, slow=True) == []
    manifest.parent.mkdir()
    manifest.write_text("v7")
    assert readings_of(sense) == []
    assert [found.text for found in readings_of(sense, slow=True)] == ["v7"]


def test_a_glob_must_match_one_file(tmp_path: Path):
    assert content(tmp_path / "*.json").error == "no file matches"
    (tmp_path / "a.json").write_text("a")
    assert content(tmp_path / "*.json").path == str(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("b")
    assert content(tmp_path / "*.json").error == "2 files match; exactly one must match"


def test_what_is_no_file_is_never_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    assert content(tmp_path / "fifo").error == "a FIFO, not a regular file: it is not read"
    assert content(tmp_path).error == "a directory, not a regular file: it is not read"
    assert content("/dev/zero").error == "a device, not a regular file: it is not read"


def test_a_huge_file_is_not_read(tmp_path: Path):
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(contents.MAX_BYTES + 1)
    assert content(tmp_path / "huge").error == "larger than 256 MiB"


def test_a_large_file_is_read_in_slices(tmp_path: Path):
    large, clock = tmp_path / "large", ManualClock()
    data = os.urandom(contents.BLOCK) * 2 + b"end"
    large.write_bytes(data)

    def slow() -> float:
        clock.at += contents.SLICE / 2
        return clock.at

    sense = Contents(spec(large), slow)
    found, passes = readings_of(sense, slow=True), 1
    while not found:
        found, passes = readings_of(sense), passes + 1
    assert passes > 1
    assert found[0].sha256 == hashlib.sha256(data).hexdigest()


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path):
    large, clock = tmp_path / "large", ManualClock()
    large.write_bytes(bytes(2 * contents.BLOCK))

    def slow() -> float:
        clock.at += contents.SLICE
        return clock.at

    sense = Contents(spec(large), slow)
    assert readings_of(sense, slow=True) == []
    large.write_bytes(b"new")
    os.utime(large, (1, 1))
    assert [one.error for one in (*readings_of(sense), *readings_of(sense))] == ["it changed meanwhile"]
    clock.at = 0.0
    assert [one.sha256 for one in (*readings_of(sense, slow=True), *readings_of(sense))] == [
        hashlib.sha256(b"new").hexdigest()
    ]


@pytest.mark.parametrize("missing", [(), ("_sha256",), ("_sha256", "_sha2")])
def test_any_module_of_python_gives_the_same_hash(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    digest = contents.sha256()
    digest.update(b"x")
    assert digest.hexdigest() == hashlib.sha256(b"x").hexdigest()


def test_a_file_that_is_watched_is_read_again_when_it_has_changed(tmp_path: Path):
    status = tmp_path / "status.json"
    sense = Contents({"files": [{"id": "status llm", "pattern": str(status), "again": True}]})
    [missing] = readings_of(sense)
    assert (missing.error or "").startswith("does not exist")
    for text in ("step 1", "step 2"):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(status)
        assert [found.text for found in readings_of(sense)] == [text]
        assert readings_of(sense, slow=True) == []
    status.unlink()
    assert [(found.text, found.error) for found in readings_of(sense)] == [(None, missing.error)]


def test_of_a_part_the_last_lines_are_read(tmp_path: Path):
    log = tmp_path / "log"
    log.write_bytes(b"old\n" + b"first\n" + b"last\xff\n" + b"new\n")

    cut = list[bool]()

    def text(*part: int | None) -> str | None:
        [found] = readings_of(Contents({"files": [{"id": "log 1", "pattern": str(log), "part": part}]}))
        assert found.sha256 is None
        cut.append(found.is_cut)
        return str(found.text)

    assert (text(4, 16), text(10, None), text(90, None)) == ("first\nlast\ufffd\n", "last\ufffd\nnew\n", "")
    assert not any(cut)
    log.write_bytes(b"x" * contents.MAX_PART + b"\nlast\n")
    assert text(0, None) == "last\n"
    assert cut.pop()
    bar = b"".join(b"\r%d%%| | %d/100 [00:01<00:02]" % (step, step) for step in range(100))
    log.write_bytes(b"\0" * 9 + bar + b'\n{"log":"boom\\n","stream":"stderr","time":"2026-01-02T03:04:05Z"}\nun\xc3')
    assert text(0, None) == "99%| | 99/100 [00:01<00:02]\n2026-01-02T03:04:05Z boom\nun\n", "as a followed log"
