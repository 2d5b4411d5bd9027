"""Which filesystem of node_exporter a watched path is on, and what is known of it."""

from __future__ import annotations

import pytest

from collectors.prometheus.readings import FAILED, NodeNumbers, disk_samples, mount_points, number_of
from trainmon.model import DiskSample

NUMBERS = {
    "total_bytes": 1000.0, "free_bytes": 400.0, "total_inodes": 50.0, "free_inodes": 20.0, "read_only": 0.0,
    "device_error": 0.0,
}  # fmt: skip


def disks(*paths: str, **mounted: dict[str, float]) -> list[DiskSample]:
    """The disks of these paths. `mounted`: by mount point, with `_` for `/`."""
    filesystems = {
        (point.replace("_", "/"), "xfs", "sda"): {field: (0.0, value) for field, value in numbers.items()}
        for point, numbers in mounted.items()
    }
    return [*disk_samples(NodeNumbers(filesystems=filesystems), paths, 0.0)]


def disk(**changes: float) -> DiskSample:
    [found] = disks("/fsx", _fsx=NUMBERS | changes)
    return found


def test_a_disk_has_the_numbers_of_its_mount() -> None:
    assert disk() == DiskSample(
        "/fsx", mount="/fsx", filesystem="xfs", read_only=False, total_bytes=1000, free_bytes=400,
        total_inodes=50, free_inodes=20,
    )  # fmt: skip
    assert disk(read_only=1.0).read_only


def test_a_path_is_on_the_longest_mount_above_it() -> None:
    found = disks("/fsx/a/run", "/fsx/b/", "/fsxother", _fsx=NUMBERS, _fsx_a=NUMBERS)
    assert [(one.path, one.mount) for one in found] == [("/fsx/a/run", "/fsx/a"), ("/fsx/b/", "/fsx")]
    assert mount_points(["/fsx/a/run", "/"]) == ["/", "/fsx", "/fsx/a", "/fsx/a/run"]


def test_only_the_root_is_taken_to_be_on_the_root_disk() -> None:
    assert [one.path for one in disks("/", "/dev/shm", "/scratch", _=NUMBERS)] == ["/"]


def test_a_filesystem_that_does_not_answer_is_an_error() -> None:
    [found] = disks("/fsx", _fsx={"device_error": 1.0})
    assert (found.state, found.error, found.total_bytes) == ("error", FAILED, None)


@pytest.mark.parametrize("numbers", [{}, {"free_bytes": 7.0}])
def test_without_its_size_a_disk_is_not_known(numbers: dict[str, float]) -> None:
    assert disks("/fsx", _fsx=numbers) == []


def test_counts_that_are_none_are_left_out() -> None:
    assert disk(free_bytes=number_of("1.8e19") or 0.0).free_bytes == 0, "a negative count: the reserve is exceeded"
    ceph = disk(total_inodes=30.0, free_inodes=1.8446744073709552e19)
    assert (ceph.total_inodes, ceph.free_inodes, ceph.total_bytes) == (None, None, 1000)
    assert disk(total_bytes=2e16, free_bytes=1e16).total_bytes == 2 * 10**16, "more than 2^53 bytes"
    assert number_of("NaN") is None
