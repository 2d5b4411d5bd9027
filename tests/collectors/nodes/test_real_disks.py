"""A real disk that fills, runs out of inodes and becomes read-only: looked at as a node does, judged by the rules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.trainmon.alerting.rules.disks.scene import Scene
from trainmon.alerting.rules import Rule
from trainmon.alerting.rules.disks import DiskFull, DiskReadOnly, InodesFull
from trainmon.model import DiskSample

ROOT = Path(__file__).parents[3]
STAGES = ("empty", "filling", "full", "deleted", "inodes", "read-only", "writable")
LIFE = """
import json, os, subprocess, sys
from collectors.probe.files.disks import sample_disk

def tell():
    print(json.dumps(sample_disk(path)), flush=True)

path = sys.argv[1]
mount = ["mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=200", "disk", path]
subprocess.run(mount, check=True)
tell()
with open(path + "/a", "wb") as file:
    file.write(bytes(15 * 1000 * 1000))
    file.flush()
    tell()
    try:
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    except OSError:
        tell()
os.unlink(path + "/a")
tell()
for number in range(195):
    open(path + "/%d" % number, "w").close()
tell()
for number in range(195):
    os.unlink(path + "/%d" % number)
subprocess.run(["mount", "-o", "remount,ro", path], check=True)
tell()
subprocess.run(["mount", "-o", "remount,rw", path], check=True)
tell()
"""


def namespace() -> list[str]:
    """How a mount of our own is made that nobody else sees."""
    for argv in (["unshare", "-Urm"], ["unshare", "-m"]):
        if subprocess.run([*argv, "true"], capture_output=True, timeout=10, check=False).returncode == 0:
            return argv
    pytest.fail("a mount namespace is needed: run as root, or sysctl kernel.unprivileged_userns_clone=1")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DiskSample]:
    """What a node said of a tmpfs, stage by stage."""
    path = tmp_path_factory.mktemp("disk")
    argv = [*namespace(), sys.executable, "-c", LIFE, str(path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    samples = [msgspec.convert(json.loads(line), DiskSample) for line in done.stdout.splitlines()]
    return dict(zip(STAGES, samples, strict=True))


def severities(rule: Rule, life: dict[str, DiskSample]) -> dict[str, str]:
    """What the rule says at each stage; nothing where everything is ok."""
    scene = Scene()
    by_stage: dict[str, str] = {}
    for stage in STAGES:
        scene.after(10.0).tell("n1", life[stage])
        found = scene.found(rule)
        assert set(found) <= {f"disk:n1:{life[stage].path}"}
        for finding in found.values():
            by_stage[stage] = finding.severity
    return by_stage


def test_a_disk_that_fills(life: dict[str, DiskSample]) -> None:
    assert severities(DiskFull(warn=0.15, critical=0.05), life) == {"filling": "warning", "full": "critical"}


def test_a_disk_without_inodes(life: dict[str, DiskSample]) -> None:
    assert severities(InodesFull(), life) == {"inodes": "critical"}


def test_a_disk_that_is_remounted_read_only(life: dict[str, DiskSample]) -> None:
    assert severities(DiskReadOnly(), life) == {"read-only": "critical"}
