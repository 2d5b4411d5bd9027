"""check, of W&B: whose key, which runs, and what to do; with the real client against a server on loopback."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.wandb.collector import WandbCollector
from tests.lab.wandb_child import environ_of
from tests.lab.wandb_server import WandbServer
from trainmon.cli.check.state import client_file_row, wandb_rows
from trainmon.cli.check.watch import Row, Watch
from trainmon.config import RunSettings, Settings
from trainmon.model import WandbDirectory, WandbRows


def a_run(name: str, group: str = "final", project: str = "tester/video") -> RunSettings:
    return RunSettings(name=name, wandb=project, group=group)


@dataclasses.dataclass
class Checked:
    server: WandbServer
    home: Path
    patch: pytest.MonkeyPatch

    def rows(self, *runs: RunSettings, **environ: str) -> list[Row]:
        for name, value in environ_of(self.server, self.home, **environ).items():
            self.patch.setenv(name, value)
        watch = Watch(Settings(runs=runs))
        with watch.monitor:
            rows = list(wandb_rows(watch))
        assert self.server.key not in str(rows)
        return rows


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checked]:
    with WandbServer.start() as server:
        yield Checked(server, tmp_path, monkeypatch)


def test_nothing_is_queried_where_no_run_names_a_project(checked: Checked) -> None:
    assert checked.rows(RunSettings(name="llm")) == []
    assert checked.server.requests == []


def test_an_account_that_is_never_told_is_a_row(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmon.cli.check.state.TIMEOUT", 0.5)
    monkeypatch.setattr(WandbCollector, "ask_viewer", lambda self, reply: None)
    row = checked.rows(a_run("llm"))[-1]
    assert (row.mark, row.what, row.text) == ("bad", "server", "no answer within 600s")


def test_without_a_key_it_says_how_to_get_one(checked: Checked) -> None:
    host = checked.server.url.removeprefix("http://")
    (row,) = checked.rows(a_run("llm"), WANDB_API_KEY="")
    hint = "log in with `wandb login`, or set WANDB_API_KEY"
    assert row == Row("bad", "W&B", "key", f"there is no key for {host}", hint)
    assert checked.server.requests == []


def test_the_key_the_account_and_each_run_are_reported(checked: Checked) -> None:
    server = checked.server
    host = server.url.removeprefix("http://")
    server.add_run("one", group="final")
    for number in (1, 2):
        server.add_run(f"twin-{number}", group="twins")
    server.add_run("gone", group="done", state="finished")
    runs = (
        a_run("llm"),
        a_run("two", "twins"),
        a_run("old", "done"),
        a_run("new", "next"),
        a_run("bad", "x", "tester/vdeo"),
    )
    key, account, llm, two, old, new, bad = checked.rows(*runs)
    assert key == Row("ok", "W&B", "key", f"in WANDB_API_KEY, for {host}")
    assert account == Row("ok", "W&B", "server", f"{host} answers tester")
    assert (llm.mark, llm.what) == ("ok", "run llm")
    assert llm.text.startswith("tester/video, group final: ")
    assert "is running, heartbeat" in llm.text
    assert (two.mark, two.fix) == ("note", "end all but one, or add a [[run]] for each")
    assert "2 runs are active where one is expected" in two.text
    assert (old.mark, "none is active" in old.text) == ("ok", True)
    assert (new.mark, "W&B has no run that matches tester/video, group next" in new.text) == ("note", True)
    assert (bad.mark, bad.what, bool(bad.fix)) == ("bad", "run bad", True)


def test_a_server_that_does_not_answer_is_reported_once(checked: Checked) -> None:
    checked.server.answer_with(401)
    key, server = checked.rows(a_run("llm"), a_run("two"))
    assert (key.mark, server.mark, server.what) == ("ok", "bad", "server")
    assert "rejects the API key" in server.text
    assert server.fix


# ---- the files of its client ---------------------------------------------------------------------------------------

WANTED = WandbDirectory("llm", "/fsx/wandb")
FILE = "/fsx/wandb/run-20260101_120000-a1/run-a1.wandb"
FIX = "start the run llm, or fix `wandb_dir` or `metrics_dir` in the config"


def found(**more: object) -> WandbRows:
    return WandbRows(**{"v": 1, "t": 1.0, "id": "llm", "path": FILE, "size": 98_304, "offset": 65_536} | more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "row"),
    [
        (
            found(rows=2, keys=("loss", "lr"), points=((1, 0, 9.0, 2.0, 1.0), (2, 1, 9.5, 1.9, 1.0))),
            Row("ok", "login1", "W&B files of llm", f"{FILE}: 2 rows in the first 64 KiB of 96 KiB, 2 curves"),
        ),
        (
            found(rows=0, damaged=2, offset=98_304),
            Row("ok", "login1", "W&B files of llm",
                f"{FILE}: 0 rows in the first 96 KiB of 96 KiB, 0 curves, 2 damaged parts skipped"),
        ),
        (
            found(rows=1, tail=1, offset=98_304, t=9_000.0, mtime=1_000.0),
            Row("ok", "login1", "W&B files of llm",
                f"{FILE}: 1 row in the first 96 KiB of 96 KiB, 0 curves, ends in an incomplete record"),
        ),
        (
            found(path=None, error="/fsx/wandb: does not exist; the nearest existing parent is /fsx"),
            Row("note", "login1", "W&B files of llm",
                "/fsx/wandb: does not exist; the nearest existing parent is /fsx", FIX),
        ),
        (
            found(error=f"{FILE}: is no .wandb file: its first bytes are wrong"),
            Row("bad", "login1", "W&B files of llm", f"{FILE}: is no .wandb file: its first bytes are wrong", FIX),
        ),
        (
            None,
            Row("bad", "login1", "W&B files of llm", "/fsx/wandb does not answer", "its file server may be down"),
        ),
    ],
)  # fmt: skip
def test_each_directory_says_what_was_found_in_it(rows: WandbRows | None, row: Row) -> None:
    assert client_file_row("login1", WANTED, rows) == row
