"""Our W&B child against a real HTTP server with the real client in it: what it tells, what it costs, how it fails."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.wandb.wire import (
    ConsoleLines,
    FetchedFile,
    FetchFile,
    HistoryPoints,
    ListRuns,
    ReadConsole,
    ReadHistory,
    ReadMetadata,
    ReadViewer,
    RequestFailed,
    RunList,
    RunMetadata,
    Viewer,
)
from tests.lab.wandb_child import WandbChild, running_child
from tests.lab.wandb_server import WandbServer
from trainmon.model import Points, WandbSpec

VIDEO = WandbSpec(project="tester/video", group="final")
STILL = b"\x89PNG\r\n\x1a\n" + bytes(40)


@pytest.fixture(scope="module")
def server() -> Iterator[WandbServer]:
    with WandbServer.start() as running:
        yield running


@pytest.fixture(scope="module")
def child(server: WandbServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WandbChild]:
    with running_child(server, tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(autouse=True)
def fresh(server: WandbServer) -> Iterator[None]:
    """A server that is well and knows nothing."""
    server.well()
    with server.lock:
        server.runs.clear()
        server.requests.clear()
    server.store.projects.add(("tester", "video"))
    yield
    server.well()


def test_the_newest_run_of_the_group_comes_first_with_all_that_is_known_of_it(
    server: WandbServer, child: WandbChild
) -> None:
    server.add_run("old1", group="final", age=7_200, state="failed")
    run = server.add_run(
        "new2", group="final", age=600, display_name="final-2", tags=["v2", "b200"], commit="c0ffee", host="gpu-001",
        config={"lr": 1e-4, "model": {"layers": 24}, "hf_token": "letters-and-more"},
    )  # fmt: skip
    server.add_run("other", group="else")
    server.log(run, {"loss": 2.5, "val": {"loss": 2.25}, "note": "warm"}, step=120)
    answer = child.expect(RunList, ListRuns(id=2, spec=VIDEO))
    assert [seen.id for seen in answer.runs] == ["new2", "old1"]
    seen = answer.runs[0]
    assert (seen.path, seen.name, seen.state, seen.group) == ("tester/video/new2", "final-2", "running", "final")
    assert seen.url == f"{server.url}/tester/video/runs/new2"
    assert (seen.step, seen.lines, seen.tags, seen.user) == (120, 1, ("v2", "b200"), "tester")
    assert seen.commit == "c0ffee"
    assert seen.created_at == pytest.approx(run.created_at, abs=1)
    assert seen.heartbeat_at == pytest.approx(run.heartbeat_at, abs=1)
    assert seen.logged_at == run.history[-1]["_timestamp"]
    assert seen.summary == {"loss": 2.5, "val.loss": 2.25, "note": "warm"}
    assert seen.config == {"lr": "0.0001", "model.layers": "24", "hf_token": "***"}


def test_in_the_steady_state_a_listing_is_one_request_and_a_history_another(
    server: WandbServer, child: WandbChild
) -> None:
    run = server.add_run("ab12", group="final")
    server.log(run, {"loss": 2.5, "lr": 0.1}, step=1)
    query = ReadHistory(id=4, path="tester/video/ab12", keys=("loss", "lr"))
    child.expect(RunList, ListRuns(id=3, spec=VIDEO))
    server.requests.clear()
    for _ in range(3):
        child.expect(RunList, ListRuns(id=3, spec=VIDEO))
        child.expect(HistoryPoints, query)
    assert [request.operation for request in server.requests] == ["Runs", "RunSampledHistory"] * 3


def test_a_state_that_changes_is_seen(server: WandbServer, child: WandbChild) -> None:
    run = server.add_run("ab12", group="final")
    assert child.expect(RunList, ListRuns(id=5, spec=VIDEO)).runs[0].state == "running"
    run.state = "crashed"
    assert child.expect(RunList, ListRuns(id=6, spec=VIDEO)).runs[0].state == "crashed"


def test_runs_are_found_by_id_display_name_and_all_of_the_tags(server: WandbServer, child: WandbChild) -> None:
    server.add_run("one", group="final", display_name="final-1", tags=["a", "b"])
    server.add_run("two", group="final", display_name="final-2", tags=["a"])

    def found(**how: object) -> list[str]:
        spec = WandbSpec(project="tester/video", **how)  # type: ignore[arg-type]
        return [run.id for run in child.expect(RunList, ListRuns(id=7, spec=spec)).runs]

    assert found(run="one") == ["one"]
    assert found(display="^final-[0-9]$") == ["two", "one"]
    assert found(display="2$", group="final") == ["two"]
    assert found(tags=("a", "b")) == ["one"]
    assert found(group="none such") == []


def test_no_more_runs_come_than_were_requested(server: WandbServer, child: WandbChild) -> None:
    for number in range(5):
        server.add_run(f"run{number}", group="final", age=100 - number)
    server.requests.clear()
    answer = child.expect(RunList, ListRuns(id=8, spec=VIDEO, limit=2))
    assert [run.id for run in answer.runs] == ["run4", "run3"]
    assert server.count("Runs") == 1


def test_an_old_run_of_a_large_group_that_trains_again_is_listed_in_its_place(
    server: WandbServer, child: WandbChild
) -> None:
    for number in range(50):
        run = server.add_run(f"run{number}", group="final", age=9_000 - 100 * number, state="finished")
        run.heartbeat_at -= 8_000 - 100 * number
    old = server.runs["tester/video/run3"]
    old.state, old.heartbeat_at = "running", server.clock.now()
    answer = child.expect(RunList, ListRuns(id=9, spec=VIDEO))
    assert [run.id for run in answer.runs] == ["run49", "run48", "run47", "run46", "run45", "run3"]
    assert answer.runs[-1].state == "running"


def test_nan_and_infinity_come_through_in_summaries_and_in_curves(server: WandbServer, child: WandbChild) -> None:
    run = server.add_run("ab12", group="final")
    for step, loss in enumerate((2.0, math.nan, math.inf, -math.inf)):
        server.log(run, {"loss": loss}, step=step)
    summary = child.expect(RunList, ListRuns(id=9, spec=VIDEO)).runs[0].summary
    assert summary["loss"] == -math.inf
    points = history(child, "loss")
    assert [str(value) for value in points.values] == ["2.0", "nan", "inf", "-inf"]
    assert list(points.steps) == [0, 1, 2, 3]
    assert list(points.times) == [row["_timestamp"] for row in run.history]


def test_each_curve_begins_where_it_was_left_though_others_were_logged_at_other_steps(
    server: WandbServer, child: WandbChild
) -> None:
    run = server.add_run("ab12", group="final")
    for step in range(10):
        server.log(run, {"loss": 2.0 - step / 10}, step=step)
    server.log(run, {"val/loss": 1.5}, step=20)
    query = ReadHistory(id=10, path=run.path, keys=("loss", "val/loss", "absent"), since={"loss": 7, "absent": 3})
    server.requests.clear()
    answer = child.expect(HistoryPoints, query)
    assert {key: list(packed.points().steps) for key, packed in answer.points.items()} == {
        "loss": [7, 8, 9],
        "val/loss": [20],
    }
    assert len(server.requests) == 1


def test_numeric_metrics_are_distinguished(server: WandbServer, child: WandbChild) -> None:
    run = server.add_run("ab12", group="final")
    server.log(run, {"loss": 2.0, "phase": "warm", "picture": {"_type": "image-file", "path": "media/images/a.png"}})
    keys = child.expect(RunList, ListRuns(id=11, spec=VIDEO)).history_keys["ab12"]
    assert keys == ("loss",)


def test_a_sample_is_listed_and_fetched(server: WandbServer, child: WandbChild, tmp_path: Path) -> None:
    run = server.add_run("ab12", group="final")
    name = "media/images/val/sample_120_ab12cd34ef56.png"
    picture = {"_type": "image-file", "path": name, "size": len(STILL), "width": 64, "height": 48, "caption": "a cat"}
    server.log(run, {"val/sample": picture}, step=120)
    run.put(name, STILL)
    sample = child.expect(RunList, ListRuns(id=12, spec=VIDEO)).samples["ab12"][0]
    assert (sample.key, sample.kind, sample.file, sample.step) == ("val/sample", "image", name, 120)
    assert (sample.bytes, sample.width, sample.height, sample.caption) == (len(STILL), 64, 48, "a cat")
    answer = child.expect(FetchedFile, FetchFile(id=13, path=run.path, file=name, directory=str(tmp_path / "samples")))
    assert answer.saved_as == str(tmp_path / "samples" / "sample_120_ab12cd34ef56.png")
    assert Path(answer.saved_as).read_bytes() == STILL


def test_a_file_that_is_not_there_yet_and_one_that_leads_elsewhere_are_refused(
    server: WandbServer, child: WandbChild, tmp_path: Path
) -> None:
    run = server.add_run("ab12", group="final")
    for name in ("media/images/later_1_abcd.png", "../../.netrc", "/etc/passwd"):
        answer = child.refused(FetchFile(id=14, path=run.path, file=name, directory=str(tmp_path)))
        assert answer.kind == "absent", answer
    assert list(tmp_path.iterdir()) == []


def test_the_last_console_lines_come_clean_and_numbered(server: WandbServer, child: WandbChild) -> None:
    run = server.add_run("ab12", group="final")
    run.print(*(f"step {number}" for number in range(30)), "\x1b[31mred\x1b[0m \x1b]0;title\x07", "50%\r100%")
    server.requests.clear()
    answer = child.expect(ConsoleLines, ReadConsole(id=15, path=run.path, last=4))
    assert answer.lines == ("step 28", "step 29", "red ", "100%")
    assert answer.numbers == (28, 29, 30, 31)
    assert answer.times[0] == pytest.approx(run.heartbeat_at, abs=0.01)
    assert len(server.requests) == 1


def test_host_and_commit_of_an_older_client_come_from_its_metadata_file(server: WandbServer, child: WandbChild) -> None:
    run = server.add_run("ab12", group="final")
    run.put("wandb-metadata.json", b'{"host": "gpu-001", "git": {"commit": "c0ffee"}, "gpu_count": 8, "gpu": "B200"}')
    answer = child.expect(RunMetadata, ReadMetadata(id=16, path=run.path))
    assert (answer.host, answer.commit) == ("gpu-001", "c0ffee")


def test_host_and_commit_of_todays_client_come_with_the_listing(server: WandbServer, child: WandbChild) -> None:
    began = {"e": {"writer1": {"host": "gpu-007", "git": {"commit": "abcdef0", "remote": "git@example.org:t.git"}}}}
    server.add_run("ab12", group="final", config={"_wandb": began, "lr": 0.1})
    run = child.expect(RunList, ListRuns(id=17, spec=VIDEO)).runs[0]
    assert (run.host, run.commit, dict(run.config)) == ("gpu-007", "abcdef0", {"lr": "0.1"})


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (429, "busy", "W&B limits the request rate (429)"),
        (500, "server", "W&B's server failed (500)"),
        (401, "unauthorized", "W&B rejects the API key (401): user is not logged in"),
        (403, "forbidden", "this W&B account has no access (403): permission denied"),
    ],
)
def test_a_servers_refusal_is_reported_in_words(
    server: WandbServer, child: WandbChild, status: int, kind: str, words: str
) -> None:
    server.answer_with(status)
    answer = child.refused(ListRuns(id=18, spec=VIDEO))
    assert (answer.kind, answer.message) == (kind, words)
    assert len(server.requests) <= 2, "of what is tried again, one more"
    server.well()
    child.expect(RunList, ListRuns(id=19, spec=VIDEO))


def test_a_project_and_a_run_that_do_not_exist_are_absent(server: WandbServer, child: WandbChild) -> None:
    answer = child.refused(ListRuns(id=20, spec=WandbSpec(project="tester/none-such", group="final")))
    assert (answer.kind, answer.message) == ("absent", "Could not find project none-such")
    assert answer.hint == "check entity, project and run, and that this account may see them"
    answer = child.refused(ReadHistory(id=21, path="tester/video/none", keys=("loss",)))
    assert (answer.kind, answer.message) == ("absent", "there is no run tester/video/none")


def test_what_cannot_be_read_is_reported_and_the_next_request_is_answered(child: WandbChild) -> None:
    child.send(b"wandb: what?\n")
    answer = child.receive()
    assert isinstance(answer, RequestFailed)
    assert answer.id == 0
    child.expect(RunList, ListRuns(id=22, spec=VIDEO))


def history(child: WandbChild, key: str) -> Points:
    answer = child.expect(HistoryPoints, ReadHistory(id=90, path="tester/video/ab12", keys=(key,)))
    return answer.points[key].points()


def test_whose_key_it_is_takes_one_request(server: WandbServer, child: WandbChild) -> None:
    answer = child.expect(Viewer, ReadViewer(id=90))
    assert (answer.user, answer.entity, answer.teams) == ("tester", "tester", ("tester",))
    assert server.count("GetViewer") <= 1
