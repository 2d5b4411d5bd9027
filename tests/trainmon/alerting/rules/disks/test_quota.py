"""Quotas: nearly used, over the soft limit, counted without a server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainmon.alerting.rules.asked import why_unknown
from tests.trainmon.alerting.rules.disks.scene import TB, Scene, alert_of, saved
from trainmon.alerting.rules.disks import QuotaUsed
from trainmon.model import Allowance, SourceRemoved

QUOTA = QuotaUsed()


def mine(used: float, hard: float | None = 10.0, **more: Any) -> Allowance:
    """Of user me, in TB."""
    return Allowance(
        owner="user me", used_bytes=round(used * TB), hard_bytes=None if hard is None else round(hard * TB), **more
    )


@pytest.mark.parametrize(("used", "severity"), [(8.9, None), (9.1, "warning"), (9.8, "critical"), (10.0, "critical")])
def test_a_quota_that_is_nearly_used(used: float, severity: str | None) -> None:
    found = Scene().allowed(mine(used)).found(QUOTA)
    assert [finding.severity for finding in found.values()] == ([] if severity is None else [severity])


def test_what_is_reported_of_a_quota() -> None:
    scene = Scene().allowed(mine(9.1), Allowance(owner="group lab", used_bytes=TB, used_inodes=7)).after(60.0)
    finding = scene.only(QUOTA)
    assert finding.subject == "disk:prod:/fsx user me"
    assert (
        finding.summary == "the quota of user me on /fsx is 91.0% used: 8.3 TiB of 9.1 TiB, 838 GiB left; read 1m ago"
    )
    assert finding.evidence == (
        "user me: 8.3 TiB used, hard 9.1 TiB",
        "group lab: 931 GiB used, no hard limit; 7 files of no limit",
    )
    assert finding.sources == ("quota:prod:/fsx",)


def test_files_count_as_well() -> None:
    finding = Scene().allowed(mine(1, used_inodes=999_000, hard_inodes=10**6)).only(QUOTA)
    assert (finding.subject, finding.severity) == ("disk:prod:/fsx user me inodes", "critical")
    assert "is 99.9% used: 999,000 of 1,000,000 files" in finding.summary


def test_of_a_large_quota_a_small_share_is_plenty() -> None:
    assert Scene().allowed(mine(920, 1000)).found(QUOTA) == {}
    assert Scene().allowed(mine(995, 1000)).only(QUOTA).severity == "critical"
    scene = Scene().saves(saved(bytes_=5 * TB)).allowed(mine(920, 1000))
    assert scene.only(QUOTA).severity == "warning"


def test_a_soft_limit_whose_grace_runs_is_a_finding_of_its_own() -> None:
    scene = Scene().allowed(mine(5, soft_bytes=4 * TB, bytes_grace="6d23h59m"))
    finding = scene.only(QUOTA)
    assert (finding.subject, finding.severity) == ("disk:prod:/fsx user me bytes grace", "warning")
    assert finding.summary == (
        "user me uses 4.5 TiB of /fsx, more than the soft limit of 3.6 TiB (bytes): writes fail in 6d23h59m; "
        "read 0s ago"
    )
    over = Scene().allowed(mine(5, soft_bytes=4 * TB, bytes_grace="expired")).only(QUOTA)
    assert over.severity == "critical"
    assert "writes fail now, after its grace period" in over.summary


def test_a_server_that_is_away_is_a_finding() -> None:
    scene = Scene().allowed(mine(5, is_inexact=True), trouble="Some devices may be not working")
    finding = scene.only(QUOTA)
    assert finding.subject == "disk:prod:/fsx servers"
    assert finding.summary == "the quota of /fsx is not exact: Some devices may be not working; read 0s ago"
    assert Scene().allowed(mine(5)).why_unknown(QUOTA, finding) is None


def test_what_is_not_answered_or_not_exact_resolves_nothing() -> None:
    finding = Scene().allowed(mine(9.8)).only(QUOTA)
    lost = Scene().allowed(mine(9.8)).lost("quota:prod:/fsx", "login1: lfs did not end in 60s")
    assert lost.why_unknown(QUOTA, finding) == "quota:prod:/fsx: login1: lfs did not end in 60s"
    late = Scene().allowed(mine(9.8)).after(3 * 600.0 + 1)
    assert late.why_unknown(QUOTA, finding) == "quota:prod:/fsx is late"
    gone = Scene().allowed(mine(9.8)).say(SourceRemoved("quota:prod:/fsx"))
    assert gone.why_unknown(QUOTA, finding) == "quota:prod:/fsx is late"
    away = Scene().allowed(mine(4.0, is_inexact=True), trouble="a server is away")
    assert (
        why_unknown(QUOTA, away.state, alert_of(finding), away.now)
        == "the quota of /fsx is not exact: a server is away"
    )
    other = Scene().allowed(Allowance(owner="group lab", used_bytes=TB))
    assert other.why_unknown(QUOTA, finding) == "the quota command of /fsx no longer reports it"
    assert Scene().allowed(mine(4.0)).why_unknown(QUOTA, finding) is None


def test_no_quota_is_no_trouble() -> None:
    assert Scene().allowed().found(QUOTA) == {}
    assert Scene().allowed(mine(5000, None)).found(QUOTA) == {}


def test_a_quota_is_known_to_every_disk_of_its_path() -> None:
    scene = Scene().allowed(mine(9.0))
    assert scene.state.disks["login1:/fsx"].left_bytes == TB
    assert scene.state.disks["n1:/fsx"].left_bytes == TB
    assert scene.state.disks["n1:/fsx"].left_inodes == 9 * 10**8
