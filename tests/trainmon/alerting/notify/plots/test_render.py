"""Pictures: drawn by a real child, read after their message, and never a reason for no message."""

from __future__ import annotations

import io
import math
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.notify.samples import alert, beat, notice, over
from trainmon.alerting.notify.plots.child import Line, Plot, draw
from trainmon.alerting.notify.plots.render import PlotRenderer
from trainmon.engine.history import POINTS_AT_MOST
from trainmon.model import Curve, Progress, Run, RunSpec, Sample, State, Wandb, WandbFile, WandbRun

PNG = b"\x89PNG\r\n\x1a\n"


def curve(count: int = 100) -> Curve:
    steps = array("d", range(count))
    return Curve(1, 0, steps, steps, array("d", [2 + math.exp(-step / 50) for step in steps]))


def wandb(**facts: Any) -> Wandb:
    attempt = WandbRun(entity="t", project="p", id="a1", name="calm-$1-river$", state="running")
    return Wandb(runs=(attempt,), active=("a1",), keys=("train/loss",), **facts)


def state(name: str = "video-2b", step: int = 12_345, loss: float | None = 2.3, **facts: Any) -> State:
    run = Run(spec=RunSpec(name=name, cluster="prod"), progress=Progress(step=step, loss=loss), **facts)
    return State(runs={name: run})


class FixedCurve:
    """A curve that is always the same, and who asked for it."""

    def __init__(self, answer: Curve | None = None) -> None:
        self.answer = answer or curve()
        self.keys: list[tuple[str, str]] = []

    def __call__(self, path: str, key: str) -> Curve:
        self.keys.append((path, key))
        return self.answer


class Counting:
    """A clock on which nothing passes unless a test says so."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


FAKE = script(
    f"import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write({PNG!r} + str(__import__('os').getpid()).encode())"
)


def test_the_loss_of_a_run_is_a_picture(tmp_path: Path) -> None:
    request = FixedCurve(curve(20_000))
    pictures = PlotRenderer(request, cache=tmp_path)
    pictures.observe(state(wandb=wandb()))
    (file,) = pictures((beat(),))
    assert (file.name, file.media_type, request.keys) == ("video-2b-loss.png", "image/png", [("t/p/a1", "train/loss")])
    picture = file.read(20)
    assert picture.startswith(PNG)
    assert len(picture) > 5_000


def test_the_file_of_the_wandb_client_is_a_picture_if_there_is_no_server() -> None:
    request = FixedCurve()
    pictures = PlotRenderer(request, argv=FAKE)
    run = WandbRun(entity="file", project="video-2b", id="offline-run-1", name="warm-start-7", state="")
    file = WandbFile(path="/w/a.wandb", runs=(run,), keys=("train/loss",), points=100)
    pictures.observe(state(loss=None, wandb_file=file))
    (drawn,) = pictures((beat(),))
    assert drawn.read(20).startswith(PNG)
    assert request.keys == [("file/video-2b/offline-run-1", "train/loss")]


def of_the_log() -> WandbFile:
    begun = WandbRun(entity="log", project="video-2b", id="0", name="from step 0", state="")
    return WandbFile(format="the log", runs=(begun,), keys=("loss",), points=100)


def test_a_run_without_wandb_is_drawn_from_its_log() -> None:
    request = FixedCurve()
    pictures = PlotRenderer(request, argv=FAKE)
    pictures.observe(state(log_metrics=of_the_log()))
    (file,) = pictures((beat(),))
    assert file.read(20).startswith(PNG)
    assert request.keys == [("log/video-2b/0", "loss")]


def test_an_attempt_of_which_wandb_has_no_curve_yet_is_drawn_from_the_log() -> None:
    class Begun(FixedCurve):
        def __call__(self, path: str, key: str) -> Curve:
            known = super().__call__(path, key)
            return curve(1) if path == "t/p/a1" else known

    request = Begun()
    pictures = PlotRenderer(request, argv=FAKE)
    pictures.observe(state(wandb=wandb(points=1), log_metrics=of_the_log()))
    (file,) = pictures((beat(),))
    assert (file.read(20).startswith(PNG), request.keys[-1]) == (True, ("log/video-2b/0", "loss"))


def test_another_metric_of_the_log_is_not_drawn_as_the_loss() -> None:
    class Begun(FixedCurve):
        def __call__(self, path: str, key: str) -> Curve:
            known = super().__call__(path, key)
            return known if path.startswith("log/") else curve(1)

    pictures = PlotRenderer(Begun(), argv=FAKE)
    log = replace(of_the_log(), keys=("learning_rate",))
    pictures.observe(state(wandb=wandb(points=1), log_metrics=log))
    assert pictures((beat(),)) == ()


def test_a_run_of_which_nothing_is_known_has_no_picture() -> None:
    pictures = PlotRenderer(FixedCurve(), argv=FAKE)
    pictures.observe(state(loss=None))
    assert pictures((beat(),)) == ()


@pytest.mark.parametrize(
    ("loss_lines", "count"),
    [
        (notice(), 1),
        (notice(alert(subject="gpu:gpu-001/3", rule="gpu-hot")), 0),
        (notice(alert(), alert(id="b", subject="node:n1", run=None), kind="digest"), 1),
        (over(alert()), 0),
        (notice(kind="acknowledged"), 0),
        (notice(alert(subject="run:other", run="other")), 0),
    ],
    ids=["run", "gpu", "digest", "over", "acknowledged", "unknown-run"],
)
def test_pictures_go_with_what_they_explain(loss_lines: Any, count: int) -> None:
    pictures = PlotRenderer(FixedCurve(), argv=FAKE)
    pictures.observe(state(wandb=wandb()))
    assert len(pictures((loss_lines,))) == count


def test_two_channels_share_one_drawing_until_it_is_old() -> None:
    clock = Counting()
    pictures = PlotRenderer(FixedCurve(), clock, argv=FAKE)
    pictures.observe(state(wandb=wandb()))
    (one,), (two,) = pictures((beat(),)), pictures((beat(),))
    first = one.read(20)
    assert two.read(20) == first
    clock.at = 61.0
    assert one.read(20) != first


@pytest.mark.parametrize(
    "argv",
    [
        script("import time; time.sleep(300)"),
        script("import sys; sys.exit('no font')"),
        script("print('hello')"),
        script("import os; os.kill(os.getpid(), 9)"),
        ("/nowhere/python",),
    ],
    ids=["hangs", "fails", "babbles", "dies", "missing"],
)
def test_a_drawing_that_fails_is_no_picture_and_no_error(argv: tuple[str, ...]) -> None:
    pictures = PlotRenderer(FixedCurve(), argv=argv, within=1.0 if "sleep" in argv[-1] else 20.0)
    pictures.observe(state(wandb=wandb()))
    (file,) = pictures((beat(),))
    assert file.read(20) == b""


def test_who_waits_for_anothers_drawing_does_not_wait_for_ever() -> None:
    pictures = PlotRenderer(FixedCurve(), argv=FAKE)
    pictures.observe(state(wandb=wandb()))
    (file,) = pictures((beat(),))
    with pictures._drawing:
        loss_lines: list[bytes] = []
        thread = threading.Thread(target=lambda: loss_lines.append(file.read(0.1)))
        thread.start()
        thread.join(20)
    assert loss_lines == [b""]


def test_the_newest_sample_goes_along(tmp_path: Path) -> None:
    old, new = tmp_path / "old.png", tmp_path / "new.mp4"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    samples = (
        Sample(key="a", kind="image", file="a.png", step=10, kept=str(old)),
        Sample(key="b", kind="video", file="b.mp4", step=20, kept=str(new)),
        Sample(key="c", kind="image", file="c.png", step=30),
        Sample(key="d", kind="table", file="d.json", step=40, kept=str(tmp_path / "d.json")),
    )
    pictures = PlotRenderer(FixedCurve(), argv=FAKE)
    pictures.observe(state(wandb=wandb(samples=samples)))
    _, sample = pictures((beat(),))
    assert (sample.name, sample.media_type, sample.read(1)) == ("video-2b-sample-step-20.mp4", "video/mp4", b"new")
    new.unlink()
    assert sample.read(1) == b"", "meanwhile another took its place"


def test_the_name_of_a_run_makes_no_path() -> None:
    pictures = PlotRenderer(FixedCurve(), argv=FAKE)
    pictures.observe(state("../../etc/ä $(id)", wandb=wandb()))
    (file,) = pictures((beat(),))
    assert file.name == "..-..-etc-----id--loss.png"


# ---- the child itself


def test_a_spike_among_as_many_points_as_there_may_be_is_seen() -> None:
    from PIL import Image

    values = array("d", [1.0 + (step % 7) / 10 for step in range(POINTS_AT_MOST)])
    tops = []
    for spike in (1.0, 90.0):
        values[150_000] = spike
        line = Line(name="x", x=array("d", range(POINTS_AT_MOST)).tobytes(), y=values.tobytes())
        drawn = Image.open(io.BytesIO(draw(Plot(title="t", x_label="step", y_label="y", lines=(line,))))).convert("RGB")
        tops.append(sum(drawn.getpixel((x, 40)) == (31, 111, 235) for x in range(drawn.width)))
    assert (tops[0], tops[1] > 0) == (0, True)


@pytest.mark.parametrize("values", [[1.0, 1.0], [math.nan, 1.0, math.inf], [0.0, 0.0, 0.0], [1e300, -1e300]])
def test_odd_numbers_are_drawn(values: list[float]) -> None:
    y = array("d", values).tobytes()
    line = Line(name="_$x$", x=array("d", range(len(values))).tobytes(), y=y)
    assert draw(Plot(title="$\\frac{", x_label="step", y_label="$", lines=(line, line))).startswith(PNG)
