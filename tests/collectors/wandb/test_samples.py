"""Validation samples: kept ready, and saved on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from collectors.wandb.child_process import WandbError
from collectors.wandb.wire import (
    AnyRequest,
    FetchFile,
)
from tests.collectors.wandb.fake_wandb import SteppedCollector
from trainmon.model import (
    Sample,
    SampleFetched,
)

IMAGE = Sample(key="val", kind="image", file="media/images/val_10_ab.png", step=10)


def test_one_image_an_hour_is_kept_ready(tmp_path: Path) -> None:
    watched = SteppedCollector(samples=tmp_path)
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": (IMAGE, replace(IMAGE, key="clip", kind="video", file="media/clip.mp4", step=11))}
    watched.pass_(300)
    (kept,) = watched.of_kind(SampleFetched)
    assert (kept.file, Path(kept.kept).name) == (IMAGE.file, "val_10_ab.png")
    assert Path(kept.kept).parent.parent == tmp_path
    watched.wandb.samples = {"a1": (replace(IMAGE, file="media/images/val_20_cd.png", step=20),)}
    watched.pass_(1_800)
    assert watched.wandb.count(FetchFile) == 1
    watched.pass_(1_800)
    assert watched.wandb.count(FetchFile) == 2


def test_a_sample_that_is_not_uploaded_yet_is_tried_again(tmp_path: Path) -> None:
    watched = SteppedCollector(samples=tmp_path)
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": (IMAGE,)}
    watched.wandb.fails(FetchFile, "absent")
    watched.pass_(30)
    assert not watched.of_kind(SampleFetched)
    del watched.wandb.trouble[FetchFile]
    asked = watched.wandb.count(FetchFile)
    watched.pass_(300)
    assert watched.wandb.count(FetchFile) == asked + 1
    assert [kept.file for kept in watched.of_kind(SampleFetched)] == [IMAGE.file]


def test_nothing_is_fetched_without_a_request_where_nothing_is_kept() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": (IMAGE,)}
    watched.pass_(300)
    assert watched.wandb.count(FetchFile) == 0


def test_a_person_saves_the_samples_and_reads_where_they_are(tmp_path: Path) -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": (IMAGE, replace(IMAGE, key="b"))}
    queries: list[str] = []
    watched.pass_(10)
    for run in ("llm", "other"):
        watched.watcher.save_samples(run, str(tmp_path), queries.append)
    watched.pass_(10)
    watched.wandb.fails(FetchFile, "absent")
    watched.watcher.save_samples("llm", str(tmp_path), queries.append)
    watched.pass_(10)
    assert queries == [
        f"saved 2 samples of llm in {tmp_path}",
        "other has no W&B project",
        "no sample of llm was saved: val: it is absent (mend it)",
    ]


def test_a_sample_that_is_gone_keeps_no_other_from_being_saved(tmp_path: Path) -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.wandb.samples = {"a1": tuple(replace(IMAGE, key=key, file=f"{key}.png") for key in "abc")}
    watched.pass_(10)
    real, queries = watched.wandb.query, list[str]()

    def query(request: AnyRequest, wanted: type[Any]) -> Any:
        if isinstance(request, FetchFile) and request.file == "b.png":
            raise WandbError("it has no such file", kind="absent")
        return real(request, wanted)

    watched.wandb.query = query  # type: ignore[method-assign]
    watched.watcher.save_samples("llm", str(tmp_path), queries.append)
    watched.pass_(10)
    assert queries == [f"saved 2 of 3 samples of llm in {tmp_path}; failed: b: it has no such file"]
