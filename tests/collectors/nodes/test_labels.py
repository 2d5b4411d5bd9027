"""The output of one srun for several tasks: whose line is whose, however it is cut."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from collectors.nodes.relay import Labels
from tests.collectors.nodes.srun import cut, labelled

READINGS = st.dictionaries(st.text(max_size=20), st.text(max_size=1500), max_size=3).map(
    lambda reading: json.dumps(reading).encode()
)
LINES = st.one_of(READINGS, st.sampled_from([b"#node gpu-1", b"#probe sh", b"#ended 0", b"", b"a warning"]))


@given(
    st.lists(st.tuples(st.integers(0, 11), LINES), max_size=12),
    st.lists(st.integers(1, 1024), min_size=1),
    st.lists(st.integers(1, 5000), min_size=1),
)
def test_any_cut_of_the_bytes_gives_the_same_lines(
    sent: list[tuple[int, bytes]], piece_sizes: list[int], read_sizes: list[int]
) -> None:
    labels = Labels()
    output = b"".join(labelled(task, line, piece_sizes) for task, line in sent)
    found = [pair for data in cut(output, read_sizes) for pair in labels.feed(data)]
    assert found == sent


def test_the_pieces_of_several_tasks_may_alternate() -> None:
    """A line of more than 1024 bytes comes in pieces, and those of another task come in between."""
    one, other = (json.dumps({"k": name * 1500}).encode() for name in "ab")
    rows = zip(labelled(0, one).splitlines(True), labelled(1, other).splitlines(True), strict=True)
    assert list(Labels().feed(b"".join(piece for row in rows for piece in row))) == [(0, one), (1, other)]


def test_labels_are_padded_and_text_without_one_is_left_out() -> None:
    output = b"Welcome to login1\n 9: x\n10: y\nsrun: error: z\n"
    assert list(Labels().feed(output)) == [(9, b"x"), (10, b"y")]


def test_an_end_in_the_middle_of_a_line_is_seen() -> None:
    assert list(Labels().feed(b'0: {"k":"ho\n0: #ended 1\n')) == [(0, b"#ended 1")]
