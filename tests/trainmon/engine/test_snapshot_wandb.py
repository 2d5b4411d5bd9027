"""The machine-readable contract, and the table for people: W&B."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from tests.end_to_end.contract import breaches
from trainmon.cli.snapshot import lines
from trainmon.engine.snapshot import encode, snapshot
from trainmon.model import LossTrouble, Run, RunSpec, Sample, Source, State, Wandb, WandbFile, WandbRun, WandbSpec

NOW = 100_000.0
NEW = WandbRun(
    entity="t", project="p", id="b2", name="llm-r2", state="running", url="https://wandb.ai/t/p/runs/b2",
    heartbeat_at=NOW - 12, step=340, summary={"loss": 2.1, "val": math.nan, "note": "x"}, host="n1", commit="0ab1",
)  # fmt: skip
KNOWN = Wandb(
    polled_at=NOW - 5,
    runs=(NEW, replace(NEW, id="a1", name="llm-r1", state="crashed")),
    active=("b2",),
    phase="active",
    since=NOW - 600,
    why="llm-r2 (b2) is running",
    keys=("loss", "val", "lr"),
    trouble=LossTrouble(state="nan", key="val", value=math.nan, step=340, at=NOW),
    samples=(Sample(key="pic", kind="image", file="media/images/pic.png", step=300, kept="/home/pic.png"),),
)
RUN = Run(spec=RunSpec(name="llm", cluster="prod", wandb=WandbSpec(project="t/p", group="g")), wandb=KNOWN)
STATE = State(at=NOW, runs={"llm": RUN})


def test_a_snapshot_with_w_and_b_keeps_the_contract_and_so_does_one_without() -> None:
    assert list(breaches(msgspec.json.decode(encode(STATE, NOW)))) == []
    bare = replace(STATE, runs={"llm": replace(RUN, wandb=None), "empty": replace(RUN, wandb=Wandb())})
    assert list(breaches(msgspec.json.decode(encode(bare, NOW)))) == []
    (first, second) = snapshot(bare, NOW)["runs"]
    assert (first["wandb"]["id"], first["wandb"]["active_in_group"], first["wandb"]["samples"]) == (None, None, [])
    assert (second["wandb"]["phase"], second["wandb"]["active_in_group"]) == ("none", 0)


def test_the_current_run_is_reported_with_its_group_its_values_and_its_samples() -> None:
    result = msgspec.json.decode(encode(STATE, NOW))["runs"][0]["wandb"]
    assert (result["id"], result["name"], result["state"], result["heartbeat_at"], result["step"]) == (
        "b2", "llm-r2", "running", NOW - 12, 340,
    )  # fmt: skip
    assert (result["active_in_group"], result["active"], result["phase"], result["before"]) == (
        1,
        ["b2"],
        "active",
        "a1",
    )
    assert (result["latest"], result["loss_state"]) == ({"loss": 2.1, "val": None, "lr": None}, "nan")
    assert result["samples"] == [
        {"key": "pic", "kind": "image", "file": "media/images/pic.png", "step": 300, "kept": "/home/pic.png"}
    ]


def test_the_table_says_what_w_and_b_says_and_what_is_wrong_with_it() -> None:
    text = "\n".join(lines(STATE))
    assert "llm-r2" in text
    assert "llm-r2 (b2) is running; val has been NaN since step 340" in text
    down = Source(
        name="wandb:llm", kind="wandb", cluster="prod", health="down", error="no key for api.wandb.ai",
        hint="run: wandb login",
    )  # fmt: skip
    blind = replace(STATE, runs={"llm": replace(RUN, wandb=None)}, sources={"wandb:llm": down})
    assert "no key for api.wandb.ai; run: wandb login; no data from W&B yet" in "\n".join(lines(blind))


def test_the_file_of_its_client_is_reported_with_its_age_and_its_latest_values() -> None:
    newest = WandbRun(
        entity="file", project="llm", id="run-1", name="warm-start-7", state="", step=39,
        summary={"loss": math.nan, "a": 1.5},
    )  # fmt: skip
    file = WandbFile(
        host="login1", path="/w/run-1/run-1.wandb", rows=40, logged_at=NOW - 6, checked_at=NOW, exit_code=3
    )
    spec = RunSpec(name="llm", cluster="prod", wandb_dir="/w")
    state = replace(STATE, runs={"llm": Run(spec=spec, wandb_file=replace(file, runs=(newest,)))})
    result = msgspec.json.decode(encode(state, NOW))["runs"][0]["wandb_file"]
    assert (result["name"], result["rows"], result["step"], result["exit_code"]) == ("warm-start-7", 40, 39, 3)
    assert (result["logged_at"], result["looked_at"], result["host"]) == (NOW - 6, NOW, "login1")
    assert result["latest"] == {"loss": None, "a": 1.5}
    assert "warm-start-7" in "\n".join(lines(state))
    assert "from the file, newest row 6s old; exit code 3" in "\n".join(lines(state))
    unread = replace(state, runs={"llm": Run(spec=spec)})
    assert "from the file, not read yet" in "\n".join(lines(unread))


def test_without_a_w_and_b_run_there_is_no_such_table() -> None:
    plain = replace(STATE, runs={"llm": Run(spec=RunSpec(name="llm", cluster="prod"))})
    text = "\n".join(lines(plain))
    assert "llm" in text
    assert "W&B" not in text
