"""One command runs all benchmarks, and renews the parts of the document that they made."""

from __future__ import annotations

from pathlib import Path

from tests.bench.__main__ import BENCHMARKS, part, renewed

NEED_MORE = {"real_gpu", "recording", "replay"}
"""A GPU; pipes or a terminal that another benchmark gives it."""


def test_every_benchmark_is_run_by_the_one_command() -> None:
    modules = (Path(__file__).parent / "bench").glob("[a-z]*.py")
    programs = {path.stem for path in modules if 'if __name__ == "__main__":' in path.read_text()}
    assert set(BENCHMARKS) == programs - NEED_MORE


def test_a_part_is_made_anew_where_it_stands_and_all_else_stays() -> None:
    document = renewed("# Performance\n\nThe prose.\n", "startup", part("startup", "100 ms"))
    document = renewed(document, "charts", part("charts", r"20 ms \1")) + "\nThe end.\n"
    again = renewed(document, "startup", part("startup", "90 ms"))
    assert again == document.replace("100 ms", "90 ms")
    assert r"20 ms \1" in again
    assert again.startswith("# Performance\n\nThe prose.\n\n<!-- bench: startup -->\n")
