"""The values in Slurm's texts."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from trainmon.slurm.parse import hosts, instant, number, printable, seconds


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        ("login1", ("login1",)),
        ("gpu-[001-003,007],login1", ("gpu-001", "gpu-002", "gpu-003", "gpu-007", "login1")),
        ("gpu-[9-11]", ("gpu-9", "gpu-10", "gpu-11")),
        ("gpu-[098-101]", ("gpu-098", "gpu-099", "gpu-100", "gpu-101")),
        ("r[1-2]n[01-02]-ib", ("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib")),
        ("gpu-[3-1]", ("gpu-[3-1]",)),
        ("gpu-[x]", ("gpu-[x]",)),
        ("gpu-[1-999999999]", ("gpu-[1-999999999]",)),
        ("@all", ("@all",)),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, names: tuple[str, ...]) -> None:
    assert hosts(text) == names


@given(st.sets(st.integers(0, 1500), min_size=1, max_size=60), st.sampled_from(["gpu-{:03}", "n{}", "r{:02}-ib"]))
def test_what_clustershell_folds_is_unfolded_again(numbers: set[int], form: str) -> None:
    names = sorted(form.format(value) for value in numbers)
    folded = str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    assert sorted(hosts(folded)) == names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00:59", 59), ("1:00:00", 3600), ("05:00", 300), ("2-03:00:01", 183_601), ("365-00:00:00", 31_536_000),
        ("UNLIMITED", None), ("NOT_SET", None), ("INVALID", None), ("Partition_Limit", None), ("", None), ("-1", None),
    ],
)  # fmt: skip
def test_durations_are_seconds(text: str, expected: float | None) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:01:00", 60.0), ("2026-11-21T12:03:00", 1795262580.0),
        ("N/A", None), ("Unknown", None), ("NONE", None), ("", None), ("9999-99-99T00:00:00", None),
    ],
)  # fmt: skip
def test_times_are_utc(text: str, expected: float | None) -> None:
    assert instant(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("12", 12), ("4-8", 4), ("0", 0), ("", None), ("N/A", None)])
def test_numbers_may_be_ranges(text: str, expected: int | None) -> None:
    assert number(text) == expected


@pytest.mark.parametrize("text", ["", " ", "(null)", "N/A", "None", "none", "Unknown", "UNLIMITED"])
def test_nothing_is_null(text: str) -> None:
    assert printable(text) is None
