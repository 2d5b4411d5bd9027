"""The disks: what a line says, which comes first, what is shared."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.tui.apps import Alone
from tests.tui.pilot import running
from tests.tui.states import worlds
from tests.tui.states.worlds import GIB, NOW, TIB, disk, source, state
from trainmon.cli.snapshot import lines as snapshot_lines
from trainmon.model import Allowance, Disk, Forecast, Quota, State
from tui.panes.disk import DiskPane, disk_sentence
from tui.style import Line, Linked, Row
from tui.views.disks import (
    PATH,
    disk_layout,
    disk_lines,
    disk_of_key,
    disk_row,
    disk_rows,
    ordered_disks,
    shown_disks,
)
from tui.views.table import RowCache


def lines(found: State, width: int = 118, sort: str = "worst", text: str = "") -> list[str]:
    shown = ordered_disks(found, sort, text)
    shape = disk_layout(width, (each.name for each in shown), usable=any(each.usable for each in shown))
    return [disk_row(each, shape, found.at).text.rstrip() for each in shown]


def one(found: Disk, width: int = 70) -> str:
    return lines(state(disks=(found,)), width)[0]


def test_a_calm_disk_says_what_is_free_and_how_fast_it_goes() -> None:
    assert one(disk("/home", full_at=NOW + 200 * 86_400)) == "  login:/home     40T  60%     12%   +205G     >30d"


async def test_one_path_is_not_called_paths() -> None:
    pane = DiskPane(id="disk")
    async with running(Alone(pane), size=(60, 10)) as pilot:
        pane.show(state(disks=(disk("/home"),)))
        await pilot.pause()
        assert "1 path " in "".join(span.text for span in pane.top.lines[0])


def test_heads_stand_over_their_columns() -> None:
    found = state(disks=(disk("/home", full_at=NOW + 200 * 86_400),))
    shown = shown_disks(found)
    shape = disk_layout(70, (each.name for each in shown), usable=False)
    names, text = shape.head(PATH).text, disk_row(shown[0], shape, NOW).text
    for name, value in (("free", "40T"), ("used", "60%"), ("inodes", "12%"), ("per day", "+205G"), ("full in", ">30d")):
        assert names.index(name) + len(name) == text.index(value) + len(value)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"free_inodes": 30_000}, "97%!"),
        ({"free_bytes": int(2 * TIB), "usable_free_bytes": int(2 * TIB)}, "2.0T!"),
        ({"full_at": NOW + 5 * 3600}, "5h!"),
        ({"inodes_full_at": NOW + 5 * 3600, "full_at": NOW + 90_000}, "inodes first"),
        ({"read_only": True}, "READ-ONLY"),
        ({"total_inodes": None, "free_inodes": None}, " - "),
        ({"bytes_per_day": None}, " ? "),
        ({"bytes_per_day": None, "recent_per_day": 126e3 * TIB}, " ~+123P "),
        ({"recent_per_day": 126e3 * TIB, "falling_full_at": NOW + 20}, " 20s!"),
        ({"bytes_per_day": -3 * GIB}, "-3.0G"),
        ({"at": NOW - 700}, "11m old"),
    ],
)
def test_what_matters_is_marked_or_named(facts: dict[str, object], says: str) -> None:
    assert says in one(disk("/data", **facts), 100)


def test_an_old_look_is_dim() -> None:
    shown = shown_disks(state(disks=(disk("/data", at=NOW - 700, free_inodes=0),)))[0]
    drawn = disk_row(shown, disk_layout(100, ["login:/data"], usable=False), NOW)
    assert {span.style for span in drawn.spans[1:]} == {"dim"}


def test_a_disk_of_a_silent_host_is_dim_at_once() -> None:
    found = state(sources=(source("n1", health="down"),), disks=(disk("/data", "n1"),))
    assert shown_disks(found)[0].stale


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"state": "hung", "at": NOW - 120}, "✗ login:/data hung: no answer for 2m"),
        ({"state": "error", "error": "Permission denied"}, "✗ login:/data Permission denied"),
        ({"state": "error", "error": "\x1b[31mno\x07"}, "✗ login:/data no"),
    ],
)
def test_a_disk_that_does_not_answer_says_why(facts: dict[str, object], says: str) -> None:
    assert one(disk("/data", free_bytes=None, total_bytes=None, **facts)) == says


def test_the_usable_share_is_what_counts_where_there_is_one() -> None:
    found = disk("/fsx", filesystem="lustre", free_bytes=int(25 * TIB), usable_free_bytes=int(5 * TIB))
    shown = shown_disks(state(disks=(found,)))[0]
    assert shown.usable
    assert shown.used == pytest.approx(75 / 80)
    assert "25T  75%    5.0T!" in one(found)


def test_a_network_filesystem_that_many_see_is_one_line() -> None:
    many = tuple(disk("/scratch", f"n{i}", filesystem="lustre", at=NOW - i) for i in range(64))
    local = tuple(disk("/tmp", f"n{i}") for i in range(2))
    shown = ordered_disks(state(disks=(*many, *local)), "name")
    assert [each.name for each in shown] == ["/scratch", "n0:/tmp", "n1:/tmp"]
    assert len(shown[0].hosts) == 64
    assert "mounted on 64 hosts" in disk_sentence(shown[0], NOW)
    assert shown[0].disk.at == NOW


def local_disks(*free_tib: float) -> State:
    """`/tmp` of so many nodes of 10 TiB each."""
    return state(
        disks=tuple(
            disk(
                "/tmp",
                f"gpu-{at:03}",
                total_bytes=int(10 * TIB),
                free_bytes=int(free * TIB),
                usable_free_bytes=int(free * TIB),
            )
            for at, free in enumerate(free_tib, 1)
        )
    )


def test_the_same_path_on_many_nodes_is_one_line_with_the_worst_value() -> None:
    found = local_disks(8.0, 6.0, 9.0, 8.0)

    assert [one.text.split()[:3] for one in rows_of(found)] == [["gpu-[001-004]:/tmp", "6.0T", "40%"]]
    group = ordered_disks(found, "worst")[0]
    assert "on 4 hosts; the fullest is gpu-002" in disk_sentence(group, NOW)
    assert [text_of(line).split()[:4] for line in disk_lines(group, found, 70)][1:] == [
        ["gpu-002", "→", "40%", "used,"], ["gpu-001", "→", "20%", "used,"],
        ["gpu-004", "→", "20%", "used,"], ["gpu-003", "→", "10%", "used,"],
    ]  # fmt: skip
    assert disk_of_key(group.key, found) == group


@pytest.mark.parametrize(("width", "name"), [(118, "gpu-[001-004]:/tmp"), (47, "4 hosts:/tmp"), (44, "4 hosts:/tmp")])
def test_a_list_of_hosts_is_counted_where_it_would_be_cut_within_a_number(width: int, name: str) -> None:
    assert lines(local_disks(8.0, 6.0, 9.0, 8.0), width)[0].strip().startswith(f"{name} ")


def test_a_disk_that_needs_attention_leaves_the_line_of_the_others() -> None:
    names = [one.name for one in ordered_disks(local_disks(8.0, 0.1, 9.0, 8.0), "worst")]

    assert names == ["gpu-002:/tmp", "gpu-[001,003-004]:/tmp"]


def test_a_filter_shows_each_of_them() -> None:
    names = [one.name for one in ordered_disks(local_disks(8.0, 6.0, 9.0), "worst", "/tmp")]

    assert names == ["gpu-001:/tmp", "gpu-002:/tmp", "gpu-003:/tmp"]


def rows_of(found: State) -> list[Row]:
    shown = ordered_disks(found, "worst")
    return disk_rows(shown, disk_layout(80, (one.name for one in shown), usable=False), NOW, RowCache())


def text_of(line: Line | Linked) -> str:
    return "".join(span.text for span in (line.spans if isinstance(line, Linked) else line))


def test_a_host_where_the_shared_one_hangs_has_its_own_line() -> None:
    well = tuple(disk("/scratch", f"n{i}", filesystem="lustre") for i in range(3))
    hung = disk("/scratch", "n9", filesystem=None, state="hung", at=NOW - 60, total_bytes=None, free_bytes=None)
    assert lines(state(disks=(*well, hung)), 60)[0] == "✗ n9:/scratch hung: no answer for 1m"


def test_the_worst_comes_first() -> None:
    found = [each.name for each in ordered_disks(worlds.rough(), "worst")]
    assert found == [
        "node08:/mnt/nfs",
        "node09:/data/archive/2026",
        "/scratch",
        "node07:/tmp",
        "node09:/opt",
        "login:/home",
    ]


def test_other_sort_orders() -> None:
    found = worlds.rough()
    assert [each.name for each in ordered_disks(found, "used")][:2] == ["node07:/tmp", "login:/home"]
    assert [each.name for each in ordered_disks(found, "free")][:2] == ["node07:/tmp", "login:/home"]
    assert [each.name for each in ordered_disks(found, "full")][:2] == ["/scratch", "node07:/tmp"]
    assert [each.name for each in ordered_disks(found, "name", "node09")] == [
        "node09:/data/archive/2026",
        "node09:/opt",
    ]


@pytest.mark.parametrize("width", [20, 34, 40, 50, 58, 66, 77, 90, 118, 190])
def test_no_line_is_wider_than_its_room(width: int) -> None:
    found = worlds.rough()
    long = disk("/a/very/long/path/to/somewhere/where/checkpoints/are/kept", "a-host-with-a-long-name")
    assert [
        text for text in lines(replace(found, disks={**found.disks, long.key: long}), width) if len(text) > width
    ] == []


def test_a_disk_keeps_its_row_until_it_is_looked_at_again_and_its_age_moves() -> None:
    cache, found = RowCache(), state(disks=(disk("/data", state="hung", at=NOW - 60),))
    shape = disk_layout(80, ["login:/data"], usable=False)
    first = disk_rows(shown_disks(found), shape, NOW, cache)[0]
    assert disk_rows(shown_disks(found), shape, NOW + 1, cache)[0] is first
    assert disk_rows(shown_disks(found), shape, NOW + 61, cache)[0].text.endswith("hung: no answer for 2m")


async def test_the_pane_copies_a_path_and_shows_the_history() -> None:
    pane = DiskPane(id="disk")
    async with running(Alone(pane), size=(120, 30)) as pilot:
        pane.show(worlds.rough())
        await pilot.pause()
        pane.lines.focus()
        pane.lines.move_to("login:/scratch")
        await pilot.pause()
        assert pane.copy_text() == "/scratch"
        foot = "".join(span.text for span in pane.bottom.lines[0])
        assert "/scratch: 61% used, 4.1 TiB of 10 TiB free; 2.0 TiB of the usable share left" in foot
        assert "lustre at /scratch on login" in disk_sentence(next(one for one in shown_disks(worlds.rough())
                                                                   if one.key == "login:/scratch"), NOW)  # fmt: skip


async def test_with_no_disk_it_says_how_to_name_one() -> None:
    pane = DiskPane(id="disk")
    async with running(Alone(pane), size=(50, 30)) as pilot:
        pane.show(State(at=NOW))
        await pilot.pause()
        lines = [row.text.strip() for row in pane.lines.rows]
        assert " ".join(lines).startswith("No disk has been read yet. A node reports its disks a few seconds after it")


# ---- quotas and forecasts ------------------------------------------------------------------------------------------


def quota(used: float, **facts: object) -> Quota:
    """Of 10 TB, asked a minute ago."""
    mine = Allowance(owner="user me", used_bytes=int(used * TIB), hard_bytes=int(10 * TIB), **facts)  # type: ignore[arg-type]
    return Quota(cluster="prod", host="login", path="/fsx", at=NOW - 60, allowances=(mine,))


def test_a_quota_that_is_nearly_used_is_shown_in_the_line_and_always_in_the_frame() -> None:
    found = disk("/fsx", quota=quota(9.8))
    assert one(found, 100).endswith("quota 98%")
    assert next(shown.name for shown in ordered_disks(state(disks=(found, disk("/home"))), "worst")) == "login:/fsx"
    assert "quota" not in one(disk("/fsx", quota=quota(5.0)), 100)
    (shown,) = shown_disks(state(disks=(disk("/fsx", quota=quota(5.0, bytes_grace="6d23h")),)))
    assert "quota: user me 5.0 TiB of 10 TiB, soft limit: 6d23h, read 1m ago" in disk_sentence(shown, NOW)


def test_no_quota_is_shown_as_none() -> None:
    none = Quota(cluster="prod", host="login", path="/fsx", at=NOW - 60)
    (shown,) = shown_disks(state(disks=(disk("/fsx", quota=none),)))
    assert "quota: none is set, read 1m ago" in disk_sentence(shown, NOW)


def test_a_forecast_says_what_it_assumes_and_where_others_write_how_wide_it_is() -> None:
    end = NOW + 5 * 3600
    trend = Forecast(full_at=end, basis="stopped", span=90_000.0, earliest=end - 3600, fit=0.42)
    (local,) = shown_disks(state(disks=(disk("/data", full_at=end, forecast=trend),)))
    assert "full in 5h, deletions seem to have stopped" in disk_sentence(local, NOW)
    (shared,) = shown_disks(state(disks=(disk("/fsx", filesystem="lustre", full_at=end, forecast=trend),)))
    assert "full in 5h (4h to never, R² 0.42), deletions seem to have stopped" in disk_sentence(shared, NOW)
    assert shared.full_at is None  # no time in the line without its doubt
    assert (local.full_at, disk_row(local, disk_layout(70, ["login:/data"], usable=False), NOW).text.count("5h!")) == (
        end,
        1,
    )


def test_a_shared_one_that_hangs_on_one_host_is_named_with_it() -> None:
    hung = disk("/scratch", "n9", filesystem="lustre", state="hung", at=NOW - 60, total_bytes=None, free_bytes=None)
    assert one(hung, 60) == "✗ n9:/scratch hung: no answer for 1m"


def test_the_pane_its_frame_and_the_snapshot_say_the_used_share() -> None:
    """Once `%` was free and `inodes` used, and the frame said what was free of both."""
    found = state(disks=(disk("/home"),))
    (shown,) = shown_disks(found)
    assert "60% used, 40 TiB of 100 TiB free; 12% of inodes used" in disk_sentence(shown, NOW)
    heads, row = (line for line in snapshot_lines(found) if line.startswith(("DISK", "login:/home")))
    for name, value in (("FREE", "40T"), ("USED", "60%"), ("INODES USED", "12%")):
        assert row[heads.index(name) :].startswith(value)
