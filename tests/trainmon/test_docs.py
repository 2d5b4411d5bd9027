"""The README's tables are those of the code."""

from __future__ import annotations

import pytest

from trainmon import docs


def test_the_readme_says_what_the_code_says() -> None:
    text = docs.README.read_text()
    assert docs.renewed(text) == text, "README.md differs; try: python -m trainmon.docs --write"


def test_every_setting_has_its_meaning() -> None:
    rows = [line.split(" | ") for line in docs.config().splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    assert [row[0] for row in rows if len(row[-1].strip(" |")) < 5] == []


def test_a_readme_without_a_part_is_refused() -> None:
    with pytest.raises(SystemExit) as caught:
        docs.renewed("# empty\n")
    assert str(caught.value) == ("README.md: there must be one <!-- commands: made by trainmon.docs --> part, not 0")
