"""The bars of a real Hugging Face Trainer, whose evaluations draw bars below that of the training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.probe.files.lines import LINE_BYTES, Lines, cut, lines_of
from tests.lab.hf_trainer import pieces
from trainmon.analysis.log_formats import advance, read_line, report
from trainmon.model import LogShape, Progress

ENDS = {"finished": (150, 150), "stopped": (380, 400), "killed": (247, 1000)}
"""The last step and the target of each log."""


def read(blocks: list[bytes]) -> list[Progress]:
    """The progress after each look of the probe."""
    lines, progress, shape, seen = Lines(), Progress(), LogShape(), list[Progress]()
    for at, block in enumerate(blocks, 1):
        lines.feed(block)
        partial = (lines.partial() or "").rstrip("\r")
        texts = [(text, True) for text in lines.take().get("lines", ())] + ([(partial, False)] if partial else [])
        for text, is_finished in texts:
            found, shape = read_line(text, progress, shape, float(at), is_finished=is_finished)
            progress = progress if found is None else advance(progress, *found, float(at))
        seen.append(progress)
    return seen


@pytest.mark.parametrize("first", [0, 10, 17])
@pytest.mark.parametrize("together", [1, 4, 9])
@pytest.mark.parametrize("name", ENDS)
def test_the_bar_of_an_evaluation_is_never_the_step_or_the_target(name: str, together: int, first: int) -> None:
    seen = read(pieces(name, together, first))
    known = [(one.step, one.target_step) for one in seen if one.step is not None]
    steps = [step for step, _ in known]
    assert known[-1] == ENDS[name]
    assert {target for _, target in known} == {ENDS[name][1]}
    assert steps == sorted(steps)


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("size", [37, 100, 4096])
def test_the_step_is_the_same_wherever_the_bytes_are_cut(name: str, size: int) -> None:
    data = b"".join(pieces(name))
    last = read([data[at : at + size] for at in range(0, len(data), size)])[-1]
    whole = report(lines_of(data)).progress
    assert (last.step, last.target_step, last.loss) == (whole.step, whole.target_step, whole.loss)


@pytest.mark.parametrize("name", ENDS)
def test_log_format_and_the_probe_read_the_same_in_a_log_that_still_grows(name: str) -> None:
    blocks = pieces(name)
    for at, progress in list(enumerate(read(blocks), 1))[::6]:
        whole = report(lines_of(b"".join(blocks[:at]))).progress
        assert (progress.step, progress.target_step, progress.loss) == (whole.step, whole.target_step, whole.loss)


def test_an_evaluation_is_seen_while_it_runs_with_the_step_above_it() -> None:
    train, evaluation = "\r 60%|###   | 90/150 [00:10<00:05, 8.00it/s]", "\r 40%|##    | 20/50 [00:01<00:02, 15.00it/s]"
    first = "\r 59%|###   | 89/150 [00:10<00:05, 8.00it/s]\r      \r{'loss': 0.5, 'epoch': 0.1}\n"
    (progress,) = read([f"{first}{train}\n{evaluation}\x1b[A".encode()])
    assert (progress.step, progress.target_step, progress.doing) == (90, 150, "eval")


@given(st.integers(0, 3), st.integers(1, 60))
def test_bars_nested_more_than_once_end_no_line(depth: int, size: int) -> None:
    down, up = "\n" * depth, "\x1b[A" * depth
    data = f"before\n\r 10%|#| 1/10 [00:01<00:09, 1.00s/it]{down}\r 50%|#| 5/10 [x{up}\rafter\n".encode()
    lines, rest = cut(b"", data)
    assert [line.rpartition(b"\r")[2] for line in lines] == [b"before", b"after"]
    assert rest == b""


def test_a_log_that_contains_only_carriage_returns_has_its_last_bar() -> None:
    data = b"".join(b"\r%3d%%|#   | %d/99999 [00:10<00:05, 8.00it/s]" % (at // 1000, at) for at in range(50_000))
    assert len(data) > 2_000_000
    *_, last = lines_of(data[-(1 << 20) :], is_cut=True)
    assert last.endswith("49999/99999 [00:10<00:05, 8.00it/s]")
    (partial,) = read([data])
    assert partial.step == 49999


@pytest.mark.parametrize("evaluated", [90, 250, 1000])
def test_the_bar_of_the_training_is_found_above_an_evaluation_of_any_length(evaluated: int) -> None:
    """A program that has just started reads all of it as one line."""
    train = "".join(tqdm(step, 1000, "Training: ", f", loss={1 / step:.4f}") for step in range(1, 501))
    below = "".join(tqdm(step, 1000, "val: ") + "\x1b[A\n" for step in range(1, evaluated + 1))
    (progress,) = read([f"{train}\n{below}".encode()])
    assert (progress.step, progress.target_step, progress.doing) == (500, 1000, "eval")


def test_one_line_of_any_length_has_text_and_begins_with_a_whole_character() -> None:
    (line,) = lines_of("ö".encode()[1:] + "ö".encode() * LINE_BYTES, is_cut=True)
    assert line == "ö" * 4000 + "…"


def tqdm(done: int, total: int, name: str = "", shown: str = "") -> str:
    """A bar as tqdm 4.70 draws it."""
    return f"\r{name}{100 * done // total:3d}%|####      | {done}/{total} [00:01<00:02, 19.97it/s{shown}]"


def test_a_bar_that_starts_again_each_epoch_is_not_the_target() -> None:
    for name in ("", "train: "):
        epoch = [tqdm(step, 20, name, f", loss={1 / step:.3f}").encode() for step in (5, 12, 20)]
        seen = read([*epoch, b"\n", *epoch, b"\n"])
        assert [one.step for one in seen][-2:] == [20, 20]
        assert [one.target_step for one in seen][-3:] == [None, None, None]


@pytest.mark.parametrize("last", [17, 20])
def test_an_epoch_whose_bar_is_erased_at_its_end_is_not_the_target(last: int) -> None:
    """A look rarely finds such a bar when it is full."""
    seen = read([tqdm(step, 20, "", f", loss={1 / step:.3f}").encode() for step in (5, last, 2, 12, last)])
    assert [one.target_step for one in seen] == [20, 20, None, None, None]


def test_a_trainer_that_resumes_keeps_its_target() -> None:
    seen = read([tqdm(step, 20, "", f", loss={1 / step:.3f}").encode() for step in (5, 18, 15, 16)])
    again = read([tqdm(step, 20, "", f", loss={1 / step:.3f}").encode() for step in (5, 14, 1, 2)])
    assert {one.target_step for one in (*seen, *again)} == {20}


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize(("outer", "name"), [("", ""), ("Epoch: ", "train: ")])
def test_neither_bar_of_a_loop_over_epochs_is_the_target(outer: str, name: str, is_left: bool) -> None:
    def inner(epoch: int) -> Iterator[bytes]:
        for step in (5, 10, 20):
            yield f"\n{tqdm(step, 20, name, f', loss={1 / (step * epoch):.3f}')}\x1b[A".encode()
        yield tqdm(20, 20, name, ", loss=0.1").encode() + b"\n" if is_left else b"\n\r" + b" " * 40 + b"\r\x1b[A"
        yield tqdm(epoch, 3, outer).encode()

    seen = read([tqdm(0, 3, outer).encode(), *(block for epoch in (1, 2, 3) for block in inner(epoch))])
    assert {one.target_step for one in seen[2:]} == {None}


def test_the_bar_inside_an_epoch_bar_has_the_steps_and_no_target() -> None:
    data = tqdm(1, 3, "Epoch: ") + "\n" + tqdm(13, 20, "", ", loss=0.0312") + "\x1b[A"
    (progress,) = read([data.encode()])
    assert (progress.step, progress.target_step, progress.loss, progress.doing) == (13, None, 0.0312, "train")


def test_a_bar_after_which_an_evaluation_reports_is_never_the_training() -> None:
    result = "{'eval_loss': 0.5, 'eval_runtime': 2.0, 'epoch': 0.1}\n"
    loss = "{'loss': 0.5, 'learning_rate': 0.1, 'epoch': 0.1}\n"
    evaluated = [(tqdm(50, 50) + "\n" + result).encode()]
    (progress,) = read(evaluated)
    assert (progress.step, progress.target_step, progress.doing) == (None, None, "eval")
    seen = read([*evaluated, (tqdm(10, 150) + "\n" + loss).encode(), tqdm(50, 50).encode(), (f"\n{loss * 3}").encode()])
    assert {(one.step, one.target_step) for one in seen[1:]} == {(10, 150)}


@pytest.mark.parametrize(
    "text", ["Validation: |          | 0/? [00:00<?, ?it/s]", "  0%|          | 0/? [00:00<?, ?it/s]"]
)
def test_a_bar_without_a_total_is_no_step(text: str) -> None:
    train = tqdm(10, 150, "", ", loss=0.5")
    (progress,) = read([f"{train}\n\r{text}\x1b[A".encode()])
    assert (progress.step, progress.target_step, progress.doing) == (10, 150, "eval")
    (alone,) = read([f"\r{text}\n".encode()])
    assert (alone.step, alone.target_step) == (None, None)


def test_a_step_clearly_above_the_target_drops_the_target() -> None:
    bar = tqdm(49, 50, "", ", loss=0.5")
    seen = read([f"{bar}\n".encode(), b"step 51: loss 0.4\n", b"step 52: loss 0.4\n"])
    assert seen[0].target_step == 50
    line = "{'loss': 0.5, 'learning_rate': 0.1, 'epoch': 0.1, 'global_step/max_steps': '90/50'}\n"
    assert read([line.encode()])[0].target_step is None
