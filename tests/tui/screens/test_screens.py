"""Whole screens, compared with the text files in tests/tui/screens. `python -m tests.tui.rewrite` writes them anew."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tests.tui.rewrite import FOLDER, SCREENS, Kept, draw


@pytest.mark.parametrize("kept", SCREENS, ids=lambda kept: kept.file.stem)
async def test_the_screen_is_as_kept(kept: Kept) -> None:
    text = await draw(kept)

    assert text == kept.file.read_text(encoding="utf-8")
    assert max(cell_len(line) for line in text.splitlines()) <= kept.size[0]


def test_no_kept_screen_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {kept.file.name for kept in SCREENS}
