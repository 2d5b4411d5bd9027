"""Untrusted text is safe to show, and its width is known."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmon.lib.text import (
    cell_width,
    clean,
    counted,
    dated,
    listed,
    mib_size,
    short_size,
    shorten,
    shorten_lines,
    shorten_middle,
    shorten_sentence,
    size,
)  # fmt: skip

HOSTILE = st.text(
    alphabet=st.one_of(
        st.sampled_from("\x1b[]\\;0123m\x07\x9b\x9c\x9d\x90P_^X\r\n\t\x00\u202e\u2066\u200b\u2028\ufe0fA b"),
        st.characters(categories=None),
    )
)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("step 1", "step 1"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;2;1;2;3mtrue colour\x1b[m", "true colour"),
        ("\x9b31m8-bit\x9b0m", "8-bit"),
        ("\x1b]0;pwned\x07title", "title"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9d0;pwned\x9ctitle", "title"),
        ("\x1bPq#0;2;0;0;0\x1b\\sixel", "sixel"),
        ("\x1b_Gf=100;AAAA\x1b\\kitty", "kitty"),
        ("cut \x1b[38;5", "cut "),
        ("cut \x1b]52;c;cm0gLXJm", "cut "),
        ("lone \x1b", "lone "),
        ("\x1b\x1b[0m[31m", "[31m"),
        ("reset\x1bc\x1b(B", "reset"),
        ("nul\x00bell\x07del\x7f", "nulbelldel"),
        ("back\x08space", "backspace"),
        ("\u202egpj.exe\u202c", "gpj.exe"),
        ("iso\u2066late\u2069", "isolate"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone \ud800 surrogate", "lone  surrogate"),
        ("line\u2028paragraph\u2029", "line paragraph "),
        ("no\xa0break", "no break"),
        ("a\nb", "a b"),
        ("a\tb", "a       b"),
        (" 1%|▏ | 1/100\r 2%|▎ | 2/100", " 2%|▎ | 2/100"),
        (" 2%|▎ | 2/100\r", " 2%|▎ | 2/100"),
        ("bar\r      \rdone", "done"),
        ("bar\r      ", "bar"),
        ("\r\r", ""),
        ("損失 █▉", "損失 █▉"),
        ("private \ue000", "private \ufffd"),
    ],
)
def test_what_is_shown_of_untrusted_text(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@given(HOSTILE)
def test_clean_text_is_printable_whatever_came(raw: str) -> None:
    shown = clean(raw)
    assert shown.isprintable()
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in shown)


@given(HOSTILE, st.integers(0, 40))
def test_cleaning_twice_is_cleaning_once_and_is_bounded(raw: str, limit: int) -> None:
    once = clean(raw, limit)
    assert clean(once, limit) == once
    assert len(once) <= limit


def test_a_long_bar_keeps_its_last_state_and_a_long_line_its_start() -> None:
    assert clean("\r".join(f"{n}/900000" for n in range(100_000))) == "99999/900000"
    assert clean("first " + "x" * 1_000_000).startswith("first x")


def test_hostile_lines_take_no_more_than_their_length() -> None:
    for attack in ("\x1b[", "\x1b]", "\x1b[0", "\x1bP\x1b", "\r", "\x9b;", "\u202e"):
        started = time.process_time()
        clean(attack * 8_000)
        assert time.process_time() - started < 0.25


@pytest.mark.parametrize(("text", "width"), [("", 0), ("abc", 3), ("損失", 4), ("e\u0301", 1), ("█▉", 2), ("🔥", 2)])
def test_width_in_cells(text: str, width: int) -> None:
    assert cell_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("video-2b", 8, "video-2b"),
        ("video-2b", 5, "vide…"),
        ("損失函数", 5, "損失…"),
        ("損失函数", 4, "損…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_a_long_text_is_cut_with_a_mark(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


@given(HOSTILE, st.integers(0, 30))
def test_a_shortened_text_always_fits(raw: str, width: int) -> None:
    assert cell_width(shorten(clean(raw), width)) <= width


def test_one_of_a_thing_is_not_several() -> None:
    assert [counted(number, "node") for number in (0, 1, 2, 1_200)] == ["0 nodes", "1 node", "2 nodes", "1,200 nodes"]


def test_a_text_is_cut_at_a_line_and_says_so() -> None:
    text = "\n".join(f"line {i} ä" for i in range(100))
    short, is_whole = shorten_lines(text, 100, "… more")
    assert not is_whole
    assert len(short.encode()) <= 100
    assert short.split("\n")[-2:] == ["line 8 ä", "… more"]
    assert shorten_lines("whole", 100, "…") == ("whole", True)


def test_a_single_line_that_is_too_long_is_cut_between_characters() -> None:
    short, _ = shorten_lines("ä" * 100, 20, "…")
    assert short == "ä" * 8 + "\n…"


@pytest.mark.parametrize(
    ("value", "text", "in_a_column"),
    [
        (0, "0 B", "0B"), (999, "999 B", "999B"), (1023, "1.0 KiB", "1.0K"), (11 * 2**30, "11 GiB", "11G"),
        (210 * 2**30, "210 GiB", "210G"), (4.1 * 2**40, "4.1 TiB", "4.1T"), (-3 * 2**30, "-3.0 GiB", "-3.0G"),
        (None, "?", "?"),
    ],
)  # fmt: skip
def test_a_size_has_one_form_in_sentences_and_one_in_columns(value: float | None, text: str, in_a_column: str) -> None:
    assert (size(value), short_size(value)) == (text, in_a_column)


def test_memory_is_a_size() -> None:
    assert [mib_size(value) for value in (512, 81_559, None)] == ["512 MiB", "80 GiB", "?"]


@pytest.mark.parametrize(
    ("text", "later"),
    [
        ("job 88 failed 19m ago", "job 88 failed at about Nov 14 21:53 UTC"),
        ("2d4h ago, then 4.1s ago", "at about Nov 12 17:43 UTC, then at about Nov 14 22:13:15 UTC"),
        ("armed for 5m by ana", "armed for 5m by ana (as of Nov 14 22:13:20 UTC)"),
        (
            "login1:/fsx will be full in 3h; read 10m ago",
            "login1:/fsx will be full in 3h; read at about Nov 14 22:02 UTC (as of Nov 14 22:13:20 UTC)",
        ),
        ("GPU 3 is lost", "GPU 3 is lost"),
        ("gpu-2h was seen long ago", "gpu-2h was seen long ago"),
    ],
)
def test_the_ages_in_a_sentence_that_is_shown_later_have_their_time(text: str, later: str) -> None:
    assert dated(text, 1_700_000_000) == later
    assert dated(later, 1_800_000_000) == later


def test_a_list_names_some_and_counts_the_rest() -> None:
    assert (listed([]), listed(["a"]), listed(["a", "b"])) == ("", "a", "a, b")
    assert listed(["a", "b", "c"], most=3) == "a, b, c"
    assert listed([*"abcdefg"]) == "a, b, c, d, e and 2 more"


@given(st.text(alphabet="ab一1 ", max_size=40), st.integers(0, 40))
def test_a_name_cut_in_its_middle_keeps_both_ends(name: str, width: int) -> None:
    cut = shorten_middle(name, width)

    assert cell_width(cut) <= width
    if cut != name and width >= 3:
        start, _, end = cut.partition("…")
        assert name.startswith(start)
        assert name.endswith(end)


def test_the_seed_of_a_name_is_not_what_is_cut() -> None:
    assert shorten_middle("exp-00-lr1e-4-bs256-seed3", 16) == "exp-00-l…6-seed3"
    assert shorten_middle("llm-7b", 16) == "llm-7b"


@pytest.mark.parametrize(
    ("width", "cut"),
    [
        (24, "GPU 5 of gpu-003 … 96 °C"),
        (34, "GPU 5 of gpu-003 is … 96 °C"),
        (41, "GPU 5 of gpu-003 is throttling: 96 °C, a…"),
        (80, "GPU 5 of gpu-003 is throttling: 96 °C, at its limit"),
    ],
)
def test_a_sentence_keeps_its_numbers_when_it_is_cut(width: int, cut: str) -> None:
    assert shorten_sentence("GPU 5 of gpu-003 is throttling: 96 °C, at its limit", width) == cut


def test_a_sentence_keeps_the_first_of_several_numbers() -> None:
    assert shorten_sentence("llm-7b takes no step for 11m, usually every 4.1s", 28) == "llm-7b takes no … 11m … 4.1s"
    assert shorten_sentence("/scratch has 97% of its inodes used, full in 5h", 28) == "/scratch has 97% of … in 5h"


HUNG = "llm-7b: hung, no step for 49s, the last was step 12,870; its GPUs are 100% busy at 21% of their power limit"


@pytest.mark.parametrize(
    ("width", "cut"),
    [
        (34, "llm-7b: hung, no step … 49s … 100%"),
        (46, "llm-7b: hung, no step for 49s, … step 12,870"),
        (62, "llm-7b: hung, no step for 49s, the last was step 12,870; its …"),
        (74, "llm-7b: hung, no step for 49s, the last was step 12,870; … are 100% busy"),
    ],
)
def test_a_number_has_the_words_beside_it_and_is_never_cut_itself(width: int, cut: str) -> None:
    assert shorten_sentence(HUNG, width) == cut


def test_no_cut_sentence_ends_just_before_a_number_or_looks_whole() -> None:
    text = "/scratch: 97% used, 310 GiB of 10 TiB free; 97% of inodes used; full in 5h; read 1s ago"
    assert shorten_sentence(text, 46) == "/scratch: 97% used, 310 GiB of 10 TiB free …"
    assert shorten_sentence(text, 74) == "/scratch: 97% used, 310 GiB of 10 TiB free; 97% of inodes used; … in 5h"


def test_a_number_has_no_word_of_the_next_part() -> None:
    text = "gpu-007: draining, 1 GPU lost: gres/gpu count reported lower than configured (7 < 8) (slurm 2h ago)"
    assert shorten_sentence(text, 74) == "gpu-007: draining, 1 GPU lost: gres/gpu count … configured (7 < 8)"


def test_a_number_of_a_host_list_is_none() -> None:
    text = "418190 video-2b of ana: runs on gpu-[001-006]; 6d20h left of 7d0h"
    assert shorten_sentence(text, 56) == "418190 video-2b of ana: runs on gpu-[001-006]; 6d20h le…"
    assert shorten_sentence(text, 44) == "418190 video-2b of ana: runs on … 6d20h left"


@given(st.text(alphabet="ab一1 .%", max_size=60), st.integers(0, 60))
def test_no_cut_sentence_is_too_wide(text: str, width: int) -> None:
    assert cell_width(shorten_sentence(text, width)) <= width


def test_the_number_of_a_key_is_no_reason_to_cut_the_advice() -> None:
    advice = "run-stalled ab12cd34; read its log (key 4), and look at the load of its GPUs (key 2)"
    assert shorten_sentence(advice, 40) == "run-stalled ab12cd34; read its log (key…"
