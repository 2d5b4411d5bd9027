"""The real client both ways, training script and `wandb.Api`, against the stand-in: what all else here rests on."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.daemons import until
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_training import Training
from tests.wandb.parts import ShiftedClock, answer, logged, read, reader

GROUP = ("--group", "final")


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WandbServer, dict[str, Any]]]:
    """A group as it grows over a day: each attempt ends otherwise, one runs at last; and what a reader then reads."""
    folder, clock = tmp_path_factory.mktemp("attempts"), ShiftedClock()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(WandbServer.start(clock))

        def start(name: str, *words: str) -> Training:
            return stack.enter_context(Training.start(server, folder / name, "--id", name, *GROUP, *words))

        first = [
            start(
                "good", "log 20", "sample", "video", "row train/loss=nan", "row train/loss=inf", "say done", "exit 0"
            ),
            start("bad", "log 3", "exit 1"),
            start("killed", "log 3", "say up"),
            start("again", "log 3", "exit 1"),
        ]
        until(lambda: logged(server.runs.get("tester/video/killed"), "up"), "its rows are there")
        assert [first[0].wait(), first[1].wait(), first[3].wait()] == [0, 1, 1]
        first[2].kill()
        until(lambda: not first[2].has_a_sidecar(), "nothing of it is left that could speak for it")
        swept = []
        for seconds in (250.0, 51.0):
            clock.skipped += seconds
            swept.append(server.sweep())
        start("next", "log 4", "say up")
        again = start("again", "log 2", "exit 0")
        until(lambda: logged(server.runs.get("tester/video/next"), "up"), "the next one runs")
        assert again.wait() == 0
        yield server, read(server, folder / "reader") | {"swept": swept}


def runs_of(attempts: tuple[WandbServer, dict[str, Any]]) -> dict[str, Any]:
    assert attempts[1]["refused"] is None
    found: dict[str, Any] = attempts[1]["runs"]
    return found


def test_each_end_of_a_script_is_its_own_state(attempts: Any) -> None:
    states = {name: run["state"] for name, run in runs_of(attempts).items()}
    assert states == {
        "good": "finished", "bad": "failed", "killed": "crashed", "again": "finished", "next": "running",
    }  # fmt: skip
    assert {run["group"] for run in runs_of(attempts).values()} == {"final"}


def test_the_newest_come_first(attempts: Any) -> None:
    assert next(iter(runs_of(attempts))) == "next"


def test_nan_and_infinity_come_back_as_words(attempts: Any) -> None:
    losses = [row["train/loss"] for row in runs_of(attempts)["good"]["losses"]]
    assert len(losses) == 22
    assert losses[-2:] == ["NaN", "Infinity"]
    assert runs_of(attempts)["good"]["summary"]["train/loss"] == "Infinity"


def test_validation_has_rows_of_its_own(attempts: Any) -> None:
    """So that keys logged at other steps are asked for apart."""
    good = runs_of(attempts)["good"]
    assert [row["_step"] for row in good["validation"]] == [10, 21]
    assert good["scanned"] == 22
    assert {"train/loss", "val/loss", "val/sample", "_step"} <= {*good["keys"]}


def test_images_and_animations_are_files_that_the_summary_names(attempts: Any) -> None:
    good = runs_of(attempts)["good"]
    for key, kind in (("val/sample", "image-file"), ("val/clip", "video-file")):
        media = good["summary"][key]
        assert media["_type"] == kind
        assert good["files"][media["path"]] == media["size"]
    assert good["summary"]["val/sample"]["caption"] == "a street at step 20"


def test_what_a_script_prints_is_its_console_log(attempts: Any) -> None:
    runs = runs_of(attempts)
    assert runs["good"]["console"] == ["step 10 loss 2.9802", "step 20 loss 2.9608", "done"]
    assert runs["bad"]["errors"] == ["CUDA error: an illegal memory access was encountered"]


def test_a_resumed_id_is_the_same_run_going_on(attempts: Any) -> None:
    again = runs_of(attempts)["again"]
    assert [row["_step"] for row in again["losses"]] == [0, 1, 2, 3, 4]
    assert again["summary"]["trainer/global_step"] == 5
    assert again["state"] == "finished"


def test_settings_and_the_host_are_reported(attempts: Any) -> None:
    good = runs_of(attempts)["good"]
    assert good["config"] == {"model": "2b", "batch": 256, "lr": 1e-4}
    assert good["host"]


def test_only_the_sweep_reports_a_kill_and_after_five_minutes(attempts: Any) -> None:
    server, result = attempts
    assert result["swept"] == [[], ["tester/video/killed"]]
    assert server.runs["tester/video/killed"].exit_code is None


def test_a_server_that_was_unwell_loses_nothing(server: WandbServer, folder: Path) -> None:
    with Training.start(server, folder, "--id", "r", "log 2", "say up") as training:
        until(lambda: logged(server.runs.get("tester/video/r"), "up"), "its rows are there")
        server.answer_with(500)
        before = server.count("stream")
        training.tell("log 10")
        until(lambda: server.count("stream") > before, "it tried")
        server.well()
        assert training.wait() == 0
    run = server.runs["tester/video/r"]
    assert [row["trainer/global_step"] for row in run.history if "train/loss" in row] == [*range(1, 13)]
    assert run.state == "finished"


def test_a_reader_gets_the_reason_why_a_server_does_not_answer(folder: Path) -> None:
    """All at once: the SDK waits out its own seconds in each."""
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(WandbServer.start()) for name in ("key", "hang", "slow")}
        servers["hang"].hang()
        servers["slow"].add_run("r")
        servers["slow"].slow(0.1)
        scripts = {
            "key": reader(servers["key"], folder / "key", WANDB_API_KEY="local-" + "f" * 40),
            "hang": reader(servers["hang"], folder / "hang", timeout=2),
            "slow": reader(servers["slow"], folder / "slow"),
        }
        received = {name: answer(script) for name, script in scripts.items()}
    assert "user is not logged in" in received["key"]["refused"]
    assert "did not respond in time" in received["hang"]["refused"]
    assert [*received["slow"]["runs"]] == ["r"]


def test_a_query_for_a_field_that_the_server_lacks_is_refused(server: WandbServer, folder: Path) -> None:
    """Else a query of ours could be wrong, and pass here."""
    query = '{ project(name: "video", entityName: "tester") { run(name: "r") { nonsense } } }'
    server.add_run("r")
    request = urllib.request.Request(
        f"{server.url}/graphql", data=json.dumps({"query": query}).encode(), headers=server.headers
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    assert refused.value.code == 400
    assert 'Cannot query field "nonsense"' in json.load(refused.value)["errors"][0]["message"]
    refused.value.close()
