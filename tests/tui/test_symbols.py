"""ASCII where Unicode cannot be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from tests.tui.rewrite import FOLDER
from tui.screens.help import SIGNS
from tui.style import TO_ASCII, ascii_text, wants_ascii
from tui.themes import Ascii


def test_every_symbol_is_as_wide_in_ascii() -> None:
    assert all(len(sign) == cell_len(sign) == len(form) == 1 and form.isascii() for sign, form in TO_ASCII.items())


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Mn", "Me", "Cf")), max_size=30))
def test_any_text_keeps_its_width_in_ascii(text: str) -> None:
    plain = ascii_text(text)

    assert plain.isascii()
    assert len(plain) == cell_len(text)


def test_the_last_step_before_the_terminal_leaves_ascii_alone_and_replaces_the_rest() -> None:
    plain, drawn = Segment("step 5"), Segment("╭─ ● 日 ─╮")

    assert [segment.text for segment in Ascii().apply([plain, drawn], Color(0, 0, 0))] == ["step 5", "+- * ?? -+"]


@pytest.mark.parametrize(
    ("environ", "encoding", "wanted"),
    [
        ({}, "UTF-8", False),
        ({}, "ANSI_X3.4-1968", True),
        ({"TERM": "dumb"}, "utf-8", True),
        ({"TRAINMON_ASCII": "1"}, "utf-8", True),
        ({"TRAINMON_ASCII": "0"}, "ascii", False),
    ],
)
def test_ascii_is_requested_or_follows_from_the_locale(environ: dict[str, str], encoding: str, wanted: bool) -> None:
    assert wants_ascii(environ, encoding) is wanted


LINES = "▂▃▅▆▇─━│┃╭╮╰╯┌┐└┘├┤┬┴┼°×"
"""Frames, axes and units; and heights between those of the legend."""


def test_every_symbol_of_every_screen_is_in_the_legend_once() -> None:
    legend = "".join(signs for signs, _ in SIGNS).replace(" ", "").replace("dim", "")
    assert len(set(legend)) == len(legend)
    drawn = "".join(path.read_text() for path in FOLDER.glob("*.txt"))
    symbols = {char for char in drawn if not char.isascii() and not char.isalnum() and not "⠀" <= char <= "⣿"}
    strangers = set("日本語“”–←")  # what people wrote, and a key
    assert symbols - {*LINES} - strangers <= set(legend)
