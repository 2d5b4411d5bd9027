"""Disks: numbers and mounts against the kernel's own, and every failure in words."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from collectors.probe.files import disks
from tests.collectors.probe.wire import ManualClock, decoded, readings_of

TABLE = rb"""22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/with\040space\134x ro,nosuid shared:3 master:1 - nfs4 server:/export rw,vers=4.2
31 22 0:41 / /fsx rw - lustre 10.0.0.1@tcp:/fsx rw,flock
32 22 0:42 / /fsx rw - tmpfs none rw
33 31 0:43 / /fsx/deep ro - xfs /dev/sdb ro
34 22 8:2 / /data rw - ext4 /dev/sdc ro,errors=remount-ro
""".splitlines()


def found(path: str, device: str = "0:0") -> tuple[str, str, bool]:
    mount = disks.mount_of(path.encode(), device, TABLE)
    assert mount
    return mount.point.decode(), mount.filesystem, mount.read_only


def test_the_longest_mount_point_above_a_path_is_its_mount():
    assert found("/home/me") == ("/", "ext4", False)
    assert found("/fsx/deep/run") == ("/fsx/deep", "xfs", True)
    assert found("/fsx-other") == ("/", "ext4", False)


def test_of_two_mounts_on_one_point_the_later_counts():
    assert found("/fsx/run") == ("/fsx", "tmpfs", False)


def test_the_device_of_the_path_reveals_a_mount_that_lies_hidden():
    assert found("/fsx/deep/run", device="0:42") == ("/fsx", "tmpfs", False)


def test_octal_escapes_and_optional_fields_of_mountinfo_are_read():
    assert found("/mnt/with space\\x/a") == ("/mnt/with space\\x", "nfs4", True)


def test_a_filesystem_that_was_remounted_read_only_is_read_only():
    assert found("/data/x") == ("/data", "ext4", True)


def test_the_numbers_are_those_of_df(tmp_path: Path):
    [reading] = readings_of(disks.Disks({"disks": [str(tmp_path)]}))
    [sample] = reading.d
    output = subprocess.run(
        ["df", "-P", "-B1", tmp_path], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    total, _, free, _, mount = output.splitlines()[1].split()[-5:]
    assert (sample.state, sample.error, sample.path) == ("ok", None, str(tmp_path))
    assert (sample.total_bytes, sample.mount) == (int(total), mount)
    assert abs(sample.free_bytes - int(free)) < 1 << 30
    assert sample.filesystem
    assert sample.read_only is False
    assert sample.free_inodes is None or 0 < sample.free_inodes <= sample.total_inodes


def test_a_filesystem_without_sizes_says_null_not_zero():
    [reading] = readings_of(disks.Disks({"disks": ["/proc"]}))
    [sample] = reading.d
    assert (sample.filesystem, sample.state) == ("proc", "ok")
    assert (sample.total_bytes, sample.free_bytes, sample.total_inodes, sample.free_inodes) == (None,) * 4


def test_a_link_is_followed_to_the_mount_it_leads_to(tmp_path: Path):
    (tmp_path / "link").symlink_to("/dev/shm")
    [reading] = readings_of(disks.Disks({"disks": [str(tmp_path / "link")]}))
    assert reading.d[0].mount == "/dev/shm"


@pytest.mark.parametrize(
    ("major", "filesystem", "is_own"),
    [
        (8, "ext4", True), (259, "xfs", True), (0, "tmpfs", True), (0, "overlay", True), (0, "btrfs", True),
        (0, "nfs4", False), (0, "lustre", False), (0, "fuse.sshfs", False), (0, "autofs", False),
    ],
)  # fmt: skip
def test_what_only_this_host_sees_is_on_a_block_device_or_on_a_filesystem_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, major: int, filesystem: str, is_own: bool
):
    (tmp_path / "mounts").write_text(
        f"22 1 8:1 / / rw - xfs /dev/a rw\n23 22 0:27 / {tmp_path} rw - {filesystem} x rw\n"
    )
    monkeypatch.setattr(disks, "MOUNTS", str(tmp_path / "mounts"))
    found = os.stat_result((0, 0, os.makedev(major, 27), 0, 0, 0, 0, 0, 0, 0))
    assert disks.is_on_this_host(os.fsencode(tmp_path / "logs" / "1.out"), found) is is_own


def test_a_missing_path_names_the_nearest_parent_that_exists(tmp_path: Path):
    [reading] = readings_of(disks.Disks({"disks": [str(tmp_path / "runs" / "a")]}))
    [sample] = reading.d
    assert (sample.state, sample.total_bytes) == ("error", None)
    assert sample.error == f"does not exist; the nearest existing parent is {tmp_path}"


def test_a_path_below_a_file_is_missing_too(tmp_path: Path):
    (tmp_path / "file").touch()
    [reading] = readings_of(disks.Disks({"disks": [str(tmp_path / "file" / "x")]}))
    assert reading.d[0].error == f"does not exist; the nearest existing parent is {tmp_path}/file"


def test_a_path_no_kernel_takes_is_an_error_and_nothing_else():
    readings = readings_of(disks.Disks({"disks": ["/tmp/a\0b", "/" + "x" * 300]}))
    assert [reading.d[0].state for reading in readings] == ["error", "error"]
    assert "embedded null" in readings[0].d[0].error
    assert readings[1].d[0].error == "file name too long"


def test_names_that_are_not_utf8_still_decode(tmp_path: Path):
    name = os.fsencode(tmp_path) + b"/\xff\xc3\xa9"
    Path(os.fsdecode(name)).mkdir()
    sample = disks.sample_disk(name.decode("utf-8", "surrogateescape"))
    # The spec comes as JSON, so the path of a real spec is text, and given back as it came.
    [found] = decoded({"k": "disk", "d": [dict(sample, path="x")]}).d
    assert found.total_bytes > 0


def test_a_path_is_read_every_10_s_and_at_once_after_a_new_spec(tmp_path: Path):
    watch = ManualClock()
    sense = disks.Disks({"disks": [str(tmp_path)]}, watch)
    assert len(readings_of(sense)) == 1
    assert readings_of(sense) == []
    watch.at += 9.9
    assert readings_of(sense) == []
    watch.at += 0.1
    assert len(readings_of(sense)) == 1
    sense.configure({"disks": [str(tmp_path), "/"]})
    assert [name for name, _ in sense.operations(slow=False)] == [f"disk:{tmp_path}", "disk:/"]
    sense.configure({})
    assert readings_of(sense) == []
