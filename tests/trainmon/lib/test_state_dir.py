"""Where our own files are: a disk of this machine first, a network's with a warning."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from trainmon.lib.state_dir import (
    StateDirectory,
    StatePath,
    filesystem_of,
    find_state_directory,
    is_first_time,
    is_network,
    read_mounts,
    select_directory,
    write_private,
    write_whole,
)

OWN, COMMON = Path("/home/me/.local/state/trainmon-tui"), Path("/var/lib/trainmon-tui")


@pytest.mark.parametrize(
    ("home", "home_writable", "common", "common_writable", "taken", "on_network"),
    [
        ("ext4", True, "ext4", True, OWN, False),
        (None, True, None, False, OWN, False),
        ("nfs4", True, "ext4", True, COMMON, False),
        ("nfs4", True, "ext4", False, OWN, True),
        ("lustre", True, "nfs", True, OWN, True),
        ("ext4", False, "ext4", True, COMMON, False),
        ("ext4", False, "ext4", False, OWN, False),
        ("fuse.sshfs", True, "xfs", True, COMMON, False),
    ],
)
def test_a_disk_of_this_machine_comes_first(
    home: str | None, home_writable: bool, common: str | None, common_writable: bool, taken: Path, on_network: bool
) -> None:
    found = select_directory(StatePath(OWN, home, home_writable), StatePath(COMMON, common, common_writable))
    assert (found.path, found.is_network, found.warning is not None) == (taken, on_network, on_network)


def test_a_network_home_is_warned_of_in_words() -> None:
    found = select_directory(StatePath(OWN, "nfs4", True), StatePath(COMMON, "ext4", False))
    assert found.warning == (
        "/home/me/.local/state/trainmon-tui is on a network file system (nfs4): the ledger there is slower, and "
        "unavailable while the file server is; set XDG_STATE_HOME to a directory on a local disk"
    )


@pytest.mark.parametrize(
    ("filesystem", "expected"),
    [
        ("ext4", False), ("xfs", False), ("overlay", False), ("tmpfs", False), ("zfs", False), ("apfs", False),
        ("fuseblk", False), ("fuse.gocryptfs", False), (None, False), ("nfs", True), ("nfs4", True), ("lustre", True),
        ("gpfs", True), ("beegfs", True), ("ceph", True), ("cifs", True), ("smb3", True), ("afs", True), ("9p", True),
        ("autofs", True), ("fuse.sshfs", True), ("fuse.juicefs", True), ("fuse.ceph-fuse", True), ("fuse", True),
    ],
)  # fmt: skip
def test_file_systems_of_a_network_are_known(filesystem: str | None, expected: bool) -> None:
    assert is_network(filesystem) is expected


MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /home rw shared:20 master:3 - autofs systemd-1 rw,fd=41
41 40 0:52 / /home rw shared:21 - nfs4 server:/export rw,vers=4.2
50 22 8:2 / /my\\040disk rw - xfs /dev/sdb rw
a torn line
"""


def test_mounts_are_read_with_escapes_and_the_last_of_one_place_counts() -> None:
    mounts = read_mounts(MOUNTINFO)
    assert mounts == {"/": "ext4", "/home": "nfs4", "/my disk": "xfs"}
    assert [filesystem_of(path, mounts) for path in ("/home/me/x", "/homes", "/my disk/x", "/home", "/")] == [
        "nfs4", "ext4", "xfs", "nfs4", "ext4",
    ]  # fmt: skip
    assert filesystem_of("/x", {}) is None


def mountinfo(tmp_path: Path, kind: str) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n41 22 0:52 / {tmp_path.resolve()}/home rw - {kind} s:/e rw\n"
    )
    return file


def test_the_directory_is_found_by_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    environ = {"HOME": str(tmp_path / "home")}
    own, common = tmp_path / "home" / ".local" / "state" / "trainmon-tui", tmp_path / "var" / "trainmon-tui"
    (tmp_path / "var").mkdir()
    assert find_state_directory(
        environ, mountinfo=mountinfo(tmp_path, "xfs"), system=tmp_path / "var"
    ) == StateDirectory(own)
    assert find_state_directory(
        environ, mountinfo=mountinfo(tmp_path, "nfs"), system=tmp_path / "var"
    ) == StateDirectory(common)
    found = find_state_directory(environ, mountinfo=mountinfo(tmp_path, "nfs"), system=tmp_path / "mountinfo")
    assert (found.path, found.is_network) == (own, True)
    assert find_state_directory(environ, mountinfo=tmp_path / "none", system=tmp_path / "var") == StateDirectory(own)


def test_a_link_into_a_network_home_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "home" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home" / "real")
    environ = {"XDG_STATE_HOME": str(tmp_path / "link")}
    found = find_state_directory(environ, mountinfo=mountinfo(tmp_path, "lustre"), system=tmp_path / "mountinfo")
    assert (found.path, found.is_network) == (tmp_path / "link" / "trainmon-tui", True)


def test_a_relative_state_home_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").touch()
    environ = {"XDG_STATE_HOME": "state", "HOME": str(tmp_path)}
    found = find_state_directory(environ, mountinfo=tmp_path / "none", system=tmp_path / "mountinfo")
    assert found.path == tmp_path / ".local" / "state" / "trainmon-tui"


def test_the_first_time_is_remembered(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    assert [is_first_time(directory, key) for key in ("step", "step", "other")] == [True, False, True]


def test_what_cannot_be_remembered_is_said_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert is_first_time(file / "state", "step")
    assert is_first_time(file / "state", "step")


def test_a_private_file_is_replaced_as_a_whole_or_kept_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file.json"
    for content, once, expected in ((b"1", True, b"1"), (b"2", True, b"1"), (b"3", False, b"3")):
        write_private(file, content, once=once)
        assert (file.read_bytes(), file.stat().st_mode & 0o777) == (expected, 0o600)
    assert [one.name for one in file.parent.iterdir()] == ["file.json"]


def test_a_private_file_that_cannot_be_written_leaves_nothing_beside_it(tmp_path: Path) -> None:
    in_its_place = tmp_path / "file.json" / "directory"
    in_its_place.mkdir(parents=True)
    for once in (True, False):
        with contextlib.suppress(OSError):
            write_private(tmp_path / "file.json", b"1", once=once)
        assert list(tmp_path.iterdir()) == [tmp_path / "file.json"]


def test_a_file_may_have_the_longest_name(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 255)
    write_whole(file, b"x")
    assert [*tmp_path.iterdir()] == [file]


def test_the_umask_says_who_may_read_a_file_unless_the_caller_does(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_whole(tmp_path / "export.csv", b"1")
        write_whole(tmp_path / "metrics.prom", b"1", mode=0o644)
    finally:
        os.umask(before)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "export.csv": 0o600,
        "metrics.prom": 0o644,
    }
