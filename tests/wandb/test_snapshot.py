"""`trainmon-tui snapshot` with W&B: what a script reads of the group, and of a W&B that does not answer."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tests.end_to_end.product import Product
from tests.lab.daemons import until
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_training import Training
from tests.wandb.parts import logged
from tests.wandb.product import pointed_at, snapshot, snapshots

TRAP = """\
import pathlib, sys
pathlib.Path({marker!r}).write_text(" ".join(sys.orig_argv))
raise ImportError("this is not wandb")
"""


def test_the_active_run_of_the_group_is_reported_while_its_script_runs(
    product: Product, server: WandbServer, folder: Path
) -> None:
    server.add_run("old", group="final", state="failed", age=7200.0).heartbeat_at -= 3600.0
    with Training.start(server, folder, "--id", "new", "--group", "final", "log 20", "sample", "say up") as training:
        until(lambda: logged(server.runs.get("tester/video/new"), "up"), "its rows are there")
        result = snapshot(product, pointed_at(server))
        assert training.wait() == 0
    assert (result.status, result.source["health"]) == (0, "ok")
    found = result.wandb
    assert (found["id"], found["state"], found["phase"], found["active_in_group"]) == ("new", "running", "active", 1)
    assert found["url"] == f"{server.url}/tester/video/runs/new"
    assert found["before"] == "old"
    assert [sample["key"] for sample in found["samples"]] == ["val/sample"]
    assert found["latest"]["train/loss"] == pytest.approx(2.9608, abs=1e-3)
    assert result.run["loss"] == pytest.approx(2.9608, abs=1e-3)


def test_who_is_active_or_why_none_is(product: Product) -> None:
    """Side by side: each with a server of its own; the key of one is where `wandb login` put it."""
    with contextlib.ExitStack() as stack:
        made = {name: stack.enter_context(WandbServer.start()) for name in ("several", "crashed", "nan", "empty")}
        for number in (1, 2):
            made["several"].log(made["several"].add_run(f"twin-{number}", group="final"), {"loss": 2.0})
        made["crashed"].add_run("gone", group="final", state="crashed", age=3600.0).heartbeat_at -= 400.0
        ill = made["nan"].add_run("ill", group="final")
        for step in range(30):
            made["nan"].log(ill, {"loss": 2.0 if step < 29 else float("nan")}, step=step)
        made["empty"].add_run("other", group="another")
        set_for = {name: pointed_at(server) for name, server in made.items()}
        log_in(product.home, set_for["nan"])
        result = snapshots(product, set_for)
    assert result["several"].wandb["phase"] == "several"
    assert all(name in result["several"].wandb["why"] for name in ("twin-1", "twin-2"))
    assert result["crashed"].wandb["phase"] == "waiting"
    assert (result["nan"].wandb["loss_state"], result["nan"].run["verdict"]) == ("nan", "diverged")
    assert result["empty"].wandb["phase"] == "none"
    assert "group final" in result["empty"].wandb["why"]


def log_in(home: Path, env: dict[str, str]) -> None:
    """The key where `wandb login` puts it, instead of in the environment."""
    machine = env["WANDB_BASE_URL"].removeprefix("http://")
    (home / ".netrc").write_text(f"machine {machine}\n  login user\n  password {env.pop('WANDB_API_KEY')}\n")


def test_a_wandb_that_does_not_answer_is_a_source_with_a_hint_and_costs_nothing_else(product: Product) -> None:
    with contextlib.ExitStack() as stack:
        names = ("401", "429", "500", "project", "nobody", "no-key")
        made = {name: stack.enter_context(WandbServer.start()) for name in names}
        for status in (401, 429, 500):
            made[str(status)].answer_with(status)
        set_for = {name: pointed_at(server) for name, server in made.items()}
        set_for["nobody"]["WANDB_BASE_URL"] = "http://127.0.0.1:1"
        del set_for["no-key"]["WANDB_API_KEY"]
        result = snapshots(product, set_for)
        counts = {name: len(server.requests) for name, server in made.items()}
    for name, each in result.items():
        assert each.source["health"] != "ok", name
        assert (each.status, each.document["verdict"]) == (3, "blind"), (
            "that this machine is seen says nothing of the run"
        )
        assert each.source["error"], name
        assert each.source["hint"] or name in ("429", "500"), "a person can do nothing but wait"
        assert made[name].key not in json.dumps(each.document) + each.noise, name
        assert each.run["name"] == "video", name
    assert counts["no-key"] == 0


def test_without_a_wandb_source_nothing_of_it_is_imported_or_started(product: Product, server: WandbServer) -> None:
    """wandb is replaced by a module that tells of its import; with a source, it is the child alone that imports it."""
    marker = product.folder / "imported"
    trap = product.folder / "trap" / "wandb"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text(TRAP.format(marker=str(marker)))
    env = pointed_at(server) | {"PYTHONPATH": str(trap.parent)}
    result = snapshot(product, env, '[[run]]\nname = "video"\n')
    assert result.wandb["id"] is None
    assert not marker.exists()
    assert server.requests == []
    result = snapshot(product, env)
    assert "wandb.child" in marker.read_text()
    assert result.source["health"] != "ok"
