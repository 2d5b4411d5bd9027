"""Disks as their hosts and their quota commands tell of them."""

from __future__ import annotations

import msgspec

from tests.end_to_end.contract import breaches
from tests.trainmon.alerting.rules.disks.scene import NOW, TB, Scene, sample
from trainmon.cli.snapshot import lines
from trainmon.engine.snapshot import encode, snapshot
from trainmon.model import Allowance, Quota, QuotaRead, SourceRemoved

MINE = Allowance(owner="user me", used_bytes=9 * TB, hard_bytes=10 * TB, used_inodes=5, hard_inodes=7)


def test_what_the_config_says_of_a_path_is_known_to_its_disks() -> None:
    scene = Scene().settled(usable=0.8, lags=1800.0).tell("n1", sample(free_bytes=30 * TB))
    disk = scene.state.disks["n1:/fsx"]
    assert (disk.usable_free_bytes, disk.lag) == (10 * TB, 1800.0)


def test_a_quota_holds_on_every_host_that_sees_the_path_and_stays_with_the_next_look() -> None:
    scene = Scene().allowed(MINE)
    assert {disk.left_bytes for disk in scene.state.disks.values()} == {TB}
    assert {disk.left_inodes for disk in scene.state.disks.values()} == {2}
    scene.after(10.0).tell("n2", sample(free_bytes=TB // 2))
    assert (scene.state.disks["n2:/fsx"].left_bytes, scene.state.disks["n1:/fsx"].left_bytes) == (TB // 2, TB)


def test_a_quota_of_one_host_is_of_its_disk_alone() -> None:
    quota = Quota(cluster="prod", host="n1", path="/fsx", at=NOW, allowances=(MINE,), source="quota:n1:/fsx")
    scene = Scene().say(QuotaRead(quota, shared=False))
    assert scene.state.disks["n1:/fsx"].quota == quota
    assert scene.state.disks["n2:/fsx"].quota is None


def test_a_quota_that_comes_before_its_disk_waits_for_it() -> None:
    scene = Scene().allowed(MINE).say(SourceRemoved("node:n1"))
    assert "n1:/fsx" not in scene.state.disks
    assert scene.tell("n1", sample()).state.disks["n1:/fsx"].left_bytes == TB


def test_a_disk_that_hangs_keeps_what_it_is() -> None:
    scene = Scene().after(30.0).tell("n1", sample(state="hung", mount=None, filesystem=None, read_only=None))
    disk = scene.state.disks["n1:/fsx"]
    assert (disk.state, disk.filesystem, disk.mount, disk.writable_at) == ("hung", "xfs", "/fsx", NOW)


def test_the_contract_has_the_quota_and_what_it_leaves() -> None:
    scene = Scene().allowed(MINE)
    assert list(breaches(msgspec.json.decode(encode(scene.state, NOW)))) == []
    result = snapshot(scene.state, NOW)["disks"][0]["quota"]
    assert (result["left_bytes"], result["left_inodes"], result["at"], result["trouble"]) == (TB, 2, NOW, None)
    assert result["allowances"][0]["whose"] == "user me"
    assert snapshot(Scene().state, NOW)["disks"][0]["quota"] is None


def test_the_table_shows_what_a_quota_leaves() -> None:
    printed = "\n".join(lines(Scene().allowed(MINE).state))
    assert "QUOTA LEFT" in printed
    assert "931G" in printed
