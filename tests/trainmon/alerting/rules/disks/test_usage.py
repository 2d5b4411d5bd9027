"""Disks: full by what may be used, without inodes, silent, read-only."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.disks.scene import NOW, TB, Scene, alert_of, sample, saved
from trainmon.alerting.rules import DISKS
from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.disks import DiskFull, DiskHung, DiskReadOnly, InodesFull
from trainmon.model import Checkpoint, Log, Run, RunSpec

FULL, INODES, HUNG, READ_ONLY = DiskFull(), InodesFull(), DiskHung(), DiskReadOnly()
NARROW: dict[str, Any] = {"total_bytes": TB, "filesystem": "xfs"}


def nearly_full(share: float = 0.05, **changes: Any) -> Scene:
    return Scene().tell("login1", sample(**{**NARROW, "free_bytes": round(share * TB), **changes}))


def test_well_disks_say_nothing() -> None:
    for kind in DISKS:
        assert Scene().saves(saved()).found(kind()) == {}


# ---- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "severity"), [(0.11, None), (0.09, "warning"), (0.02, "critical")])
def test_little_that_is_left(share: float, severity: str | None) -> None:
    found = nearly_full(share).found(FULL)
    assert [finding.severity for finding in found.values()] == ([] if severity is None else [severity])
    assert list(found) in ([], ["disk:login1:/fsx"])


def test_what_is_reported_of_a_full_disk() -> None:
    finding = nearly_full().saves(saved(bytes_=10**10)).after(5.0).only(FULL)
    assert (
        finding.summary
        == "login1:/fsx is 95.0% full (47 GiB of 931 GiB free): room for 5 checkpoints of 9.3 GiB; read 5s ago"
    )
    assert finding.evidence == (
        "xfs at /fsx, mounted on 1 host",
        "50,000,000,000 of 1,000,000,000,000 bytes free, 900,000,000 of 1,000,000,000 inodes",
    )
    assert finding.advice == "key 3 shows the disks; delete what is no longer needed: du -xsh /fsx/ckpt/* | sort -h"
    assert (finding.run, finding.node, finding.cluster) == ("llm", "login1", "prod")
    assert finding.sources == ("node:login1",)


def test_where_a_share_is_the_new_whole_it_is_what_counts() -> None:
    scene = Scene().settled(usable=0.8).tell("login1", sample(**NARROW, free_bytes=25 * TB // 100))
    finding = scene.only(FULL)
    assert finding.severity == "warning"
    assert finding.summary.startswith("login1:/fsx is 93.8% full (47 GiB of the usable 745 GiB free)")


def test_a_small_share_of_a_large_disk_is_plenty() -> None:
    """5% of 9.8 PB are fine: 20 of the largest checkpoint fit, or nobody saves there and 10 TB are left."""
    large = sample(total_bytes=9_800 * TB, free_bytes=490 * TB)
    assert Scene().tell("login1", large).found(FULL) == {}
    assert Scene().tell("login1", large).saves(saved(bytes_=2 * TB)).found(FULL) == {}
    finding = Scene().tell("login1", large).saves(saved(bytes_=30 * TB)).only(FULL)
    assert "room for 16 checkpoints of 27 TiB" in finding.summary


def test_small_checkpoints_do_not_make_little_of_a_full_disk() -> None:
    """Logs, caches and W&B write there, too: 20 checkpoints of 50 MB are no measure of that."""
    scene = nearly_full(0.01).saves(saved(50 * 10**6))
    assert scene.only(FULL).severity == "critical"
    large = sample(total_bytes=9_800 * TB, free_bytes=TB, filesystem="xfs")
    assert Scene().tell("login1", large).saves(saved(50 * 10**6)).found(FULL) == {}


def test_what_the_next_save_makes_critical_again_stays_critical() -> None:
    """Else each save tells anew that it has become worse."""
    scene = nearly_full(0.02).saves(saved(TB // 20))
    alert = alert_of(scene.only(FULL))
    scene.state = replace(scene.state, alerts={alert.id: alert})
    between = sample(**{**NARROW, "free_bytes": 7 * TB // 100})
    assert scene.tell("login1", between).only(FULL).severity == "critical"
    assert scene.saves(None).only(FULL).severity == "warning"


def test_the_largest_of_the_recent_checkpoints_counts() -> None:
    found = saved(bytes_=TB)
    larger = Checkpoint(step=90, state="superseded", path="/fsx/ckpt/90", layout="dcp", bytes=30 * TB, at=NOW - 2400)
    torn = Checkpoint(step=95, state="torn", path="/fsx/ckpt/95", layout="dcp", bytes=90 * TB, at=NOW - 2400)
    scene = Scene().tell("login1", sample(total_bytes=9_800 * TB, free_bytes=490 * TB))
    finding = scene.saves(replace(found, list=(*found.list, torn, larger))).only(FULL)
    assert "room for 16 checkpoints of 27 TiB" in finding.summary


def test_a_filesystem_that_many_see_is_one_place() -> None:
    scene = Scene()
    for host in ("login1", "n1", "n2"):
        scene.tell(host, sample(**NARROW | {"filesystem": "lustre"}, free_bytes=10**10))
    finding = scene.only(FULL)
    assert (finding.subject, finding.node, finding.severity) == ("disk:prod:/fsx", None, "critical")
    assert finding.summary.startswith("/fsx is 99.0% full (9.3 GiB of 931 GiB free)")
    assert finding.evidence[0] == "lustre at /fsx, mounted on 3 hosts"


def test_one_host_that_goes_does_not_hide_a_shared_one() -> None:
    scene = Scene()
    for host in ("login1", "n1"):
        scene.tell(host, sample(**NARROW | {"filesystem": "lustre"}, free_bytes=10**10))
    assert scene.lost("node:login1").only(FULL).subject == "disk:prod:/fsx"


def test_the_root_of_a_node_does_not_hold_checkpoints_of_another_mount() -> None:
    scene = Scene().saves(saved(bytes_=10**9))
    scene.tell("login1", sample(), sample("/", total_bytes=TB, free_bytes=8 * 10**10))
    finding = scene.only(FULL)
    assert finding.subject == "disk:login1:/"
    assert "checkpoint" not in finding.summary


def test_a_disk_that_cannot_be_seen_is_not_well() -> None:
    finding = nearly_full().only(FULL)
    assert nearly_full().lost("node:login1").why_unknown(FULL, finding) == (
        "login1:/fsx was last sampled 0s ago: no answer in 10s"
    )
    assert nearly_full().after(600.0).why_unknown(FULL, finding) == "login1:/fsx was last sampled 10m ago"
    hung = nearly_full().tell("login1", sample(state="hung", free_bytes=None, total_bytes=None))
    assert hung.why_unknown(FULL, finding) == "/fsx does not answer"
    assert nearly_full().tell("login1", sample(read_only=True)).why_unknown(FULL, finding) == "/fsx is read-only now"
    unknown = nearly_full().tell("login1", sample(free_bytes=None, total_bytes=None))
    assert unknown.why_unknown(FULL, finding) == "its size is not known"
    gone = nearly_full()
    gone.state = replace(gone.state, disks={})
    assert gone.why_unknown(FULL, finding) == "login1:/fsx is not sampled now"
    assert nearly_full().tell("login1", sample()).why_unknown(FULL, finding) is None


def test_statistics_that_lag_are_not_believed_at_once_when_they_are_well_again() -> None:
    finding = nearly_full().only(FULL)
    scene = Scene().settled(lags=1800.0).after(60.0).tell("login1", sample())
    assert scene.state.disks["login1:/fsx"].lag == 1800.0
    assert scene.why_unknown(FULL, finding) == "the statistics of /fsx may be 30m old"
    later = Scene().settled(lags=1800.0).after(1900.0).tell("login1", sample())
    assert later.why_unknown(FULL, finding) is None
    assert (
        nearly_full()
        .settled(lags=1800.0)
        .tell("login1", sample(**NARROW, free_bytes=10**9))
        .only(FULL)
        .summary.endswith("read 0s ago, and its statistics may be 30m old")
    )


# ---- inodes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "free", "severity"),
    [(10**6, 60_000, None), (10**6, 40_000, "warning"), (10**6, 20_000, "critical"), (10**10, 4 * 10**8, None),
     (None, None, None)],
)  # fmt: skip
def test_few_inodes(total: int | None, free: int | None, severity: str | None) -> None:
    found = Scene().tell("login1", sample(total_inodes=total, free_inodes=free)).found(INODES)
    assert [finding.severity for finding in found.values()] == ([] if severity is None else [severity])


def test_what_is_reported_of_few_inodes() -> None:
    scene = Scene().tell("login1", sample(total_inodes=10**6, free_inodes=40_000))
    finding = scene.only(INODES)
    assert finding.summary == "login1:/fsx has 40,000 inodes left of 1,000,000: 4.0%; read 0s ago"
    assert finding.advice.endswith("du --inodes -xd1 /fsx | sort -n")
    scene.tell("login1", sample(total_inodes=None, free_inodes=None))
    assert scene.why_unknown(INODES, finding) == "its inodes are not known"


# ---- silent ----------------------------------------------------------------------------------------------------------


def hung(scene: Scene, *hosts: str, **changes: Any) -> Scene:
    blank = dict.fromkeys(
        ("mount", "filesystem", "read_only", "total_bytes", "free_bytes", "total_inodes", "free_inodes")
    )
    for host in hosts:
        scene.tell(host, sample(**{**blank, "state": "hung", "error": "no answer for 12s", **changes}))
    return scene


def test_a_mount_that_hangs_is_critical_where_a_run_writes() -> None:
    finding = hung(Scene().saves(saved()), "login1").only(HUNG)
    assert (finding.subject, finding.severity, finding.run) == ("disk:login1:/fsx", "critical", "llm")
    assert finding.summary == "login1:/fsx does not answer; last tried 0s ago"
    assert finding.evidence == ("login1: no answer for 12s",)
    assert hung(Scene(), "login1").only(HUNG).severity == "warning"


def test_an_error_is_reported_as_it_is() -> None:
    finding = hung(Scene(), "n1", state="error", error="Stale file handle").only(HUNG)
    assert finding.summary == "n1:/fsx cannot be read: Stale file handle; last tried 0s ago"


def test_a_directory_that_a_run_has_yet_to_make_is_no_trouble() -> None:
    gone = {"path": "/fsx/ckpt", "state": "error", "error": "does not exist; the nearest existing parent is /fsx"}
    scene = hung(Scene().saves(None), "login1", **gone)
    assert scene.found(HUNG) == {}
    assert hung(Scene().saves(replace(saved(), list=())), "login1", **gone).found(HUNG) == {}
    vanished = hung(Scene().saves(saved()), "login1", **gone).only(HUNG)
    assert (vanished.severity, vanished.run) == ("critical", "llm")
    assert vanished.summary == "login1:/fsx/ckpt does not exist; the nearest existing parent is /fsx; last tried 0s ago"


def test_a_directory_that_a_run_has_made_since_the_disk_was_sampled_is_no_trouble() -> None:
    """Its own listing, or the line that was read of its log, is newer than the sample."""
    gone = {"path": "/fsx/ckpt", "state": "error", "error": "does not exist; the nearest existing parent is /fsx"}
    scene = hung(Scene(), "login1", **gone).after(3.0)
    assert scene.saves(replace(saved(), listed_at=scene.now)).found(HUNG) == {}
    log = Log(host="login1", path="/fsx/ckpt/train.log", at=scene.now, checked_at=scene.now)
    spec = RunSpec(name="llm", cluster="prod", log="/fsx/ckpt/train.log")
    scene.state = replace(scene.state, runs={"llm": Run(spec=spec, log=log)})
    assert scene.found(HUNG) == {}
    vanished = replace(log, error="does not exist; the nearest existing parent is /fsx")
    scene.state = replace(scene.state, runs={"llm": Run(spec=spec, log=vanished)})
    assert scene.only(HUNG).severity == "critical"


def test_the_directory_of_a_log_pattern_that_no_run_has_made_yet_is_no_trouble() -> None:
    """It is the nearest one above the wildcards that is sampled."""
    gone = {"path": "/fsx/logs", "state": "error", "error": "does not exist; the nearest existing parent is /fsx"}
    spec = RunSpec(name="llm", cluster="prod", log="/fsx/logs/*/train.log")
    scene = hung(Scene(), "login1", **gone)
    scene.state = replace(scene.state, runs={"llm": Run(spec=spec)})
    assert scene.found(HUNG) == {}


def test_a_path_that_is_not_there_hangs_nowhere() -> None:
    missing = "does not exist; the nearest existing parent is /"
    finding = hung(Scene(), "n1", state="error", error=missing).only(HUNG)
    assert (finding.severity, finding.summary) == ("warning", f"n1:/fsx {missing}; last tried 0s ago")
    assert finding.advice == "a mount is missing, or the config is wrong: see findmnt -T /fsx on n1"
    assert "server" not in hung(Scene(), "n1", state="error", error="Permission denied").only(HUNG).advice


def test_a_directory_of_a_run_that_hung_is_well_when_its_mount_answers() -> None:
    """Its mount is not known while it hangs: from then on it is told by that."""
    scene = hung(Scene().saves(saved()), "login1", path="/fsx/ckpt")
    finding = scene.only(HUNG)
    assert finding.subject == "disk:login1:/fsx/ckpt"
    for _ in range(10):
        scene.after(10.0).tell("login1", sample())
    assert "login1:/fsx/ckpt" not in scene.state.disks
    assert scene.why_unknown(HUNG, finding) is None
    scene.after(100.0)
    assert scene.why_unknown(HUNG, finding) == "login1:/fsx was last sampled 1m ago"


def test_a_shared_one_that_hangs_on_many_hosts_is_one_finding() -> None:
    scene = Scene()
    for host in ("login1", "n1", "n2"):
        scene.tell(host, sample(filesystem="lustre"))
    finding = hung(scene, "n1", "n2").only(HUNG)
    assert (finding.subject, finding.node) == ("disk:prod:/fsx", None)
    assert finding.summary == "/fsx does not answer on 2 of 3 hosts; last tried 0s ago"
    assert finding.evidence == ("n1, n2: no answer for 12s",)
    assert hung(scene, "login1").only(HUNG).subject == "disk:prod:/fsx"


def test_one_that_answers_again_is_well_and_one_that_is_not_seen_is_not() -> None:
    finding = hung(Scene(), "n1").only(HUNG)
    assert Scene().why_unknown(HUNG, finding) is None
    assert hung(Scene(), "n1").lost("node:n1").why_unknown(HUNG, finding) == (
        "n1:/fsx was last sampled 0s ago: no answer in 10s"
    )


# ---- read-only -------------------------------------------------------------------------------------------------------


def test_a_disk_that_becomes_read_only() -> None:
    finding = Scene().after(30.0).tell("n1", sample(read_only=True)).only(READ_ONLY)
    assert (finding.subject, finding.severity) == ("disk:n1:/fsx", "critical")
    assert finding.summary == "n1:/fsx is mounted read-only: it was writable 30s ago; read 0s ago"


def test_one_that_always_was_is_nobodys_trouble_unless_a_run_saves_there() -> None:
    scene = Scene().tell("n1", sample("/opt", read_only=True))
    assert scene.found(READ_ONLY) == {}
    scene.state = replace(scene.state, disks={})
    scene.tell("login1", sample(read_only=True)).saves(saved())
    assert scene.only(READ_ONLY).summary == (
        "login1:/fsx is mounted read-only; llm saves its checkpoints there; read 0s ago"
    )


def test_that_it_became_so_is_known_after_it_hung_and_after_a_restart() -> None:
    scene = hung(Scene().after(30.0), "n1").after(30.0).tell("n1", sample(read_only=True))
    finding = scene.only(READ_ONLY)
    assert "was writable 1m ago" in finding.summary
    anew = Scene()
    anew.state = replace(anew.state, disks={}, alerts={"a1b2c3d4": alert_of(finding)})
    assert anew.tell("n1", sample(read_only=True)).only(READ_ONLY).subject == "disk:n1:/fsx"


def test_one_that_does_not_answer_is_not_writable_again() -> None:
    finding = Scene().tell("n1", sample(read_only=True)).only(READ_ONLY)
    assert hung(Scene(), "n1").why_unknown(READ_ONLY, finding) == "/fsx does not answer"
    assert Scene().lost("node:n1").why_unknown(READ_ONLY, finding) is not None
    assert Scene().why_unknown(READ_ONLY, finding) is None


@pytest.mark.parametrize("kind", DISKS)
def test_every_rule_says_where_its_numbers_are_from(kind: type[Rule]) -> None:
    assert kind.origin
    assert kind.__doc__
