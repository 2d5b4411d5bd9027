"""The rule about quotas: nearly used up, a grace period that ends, or a count that is not exact."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Share, Size, ago, is_answering, why_silent
from trainmon.alerting.rules.disks.base import DiskRule
from trainmon.analysis.disks import EXPIRED, largest
from trainmon.lib import Instant, clean, size
from trainmon.model import Alert, Allowance, Finding, Quota, Severity, State

SERVERS = " servers"
"""The end of a subject about a missing quota server."""


class QuotaUsed(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quota is nearly used up, in bytes or in files. Or more than its soft limit is used, so writes fail when the
    grace period ends. Or a server was missing when it was counted."""

    name = "quota"
    origin = "90 % and 97 % of the hard limit: our choice, one poll in ten minutes"

    keep_firing_for: Duration = 300.0
    """How long the condition must be gone before the alert resolves."""
    warn: Share = 0.90
    """Warning at this share of the hard limit, or more."""
    critical: Share = 0.97
    """Critical at this share of the hard limit, or more."""
    checkpoints: int = 20
    """No alert while this many checkpoints fit, each as large as the largest recent one."""
    little: Size = 100_000_000_000
    """With less space left than this, `checkpoints` is ignored."""
    plenty: Size = 10_000_000_000_000
    """On a disk without checkpoints: no alert while this much is left."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for where, quota in state.quotas.items():
            if not is_answering(state.sources.get(quota.source)):
                continue
            disks = (disk for disk in state.disks.values() if disk.quota is quota)
            sizes = (largest(disk, state.disks, state.runs.values()) for disk in disks)
            known = [found for found in sizes if found is not None]
            enough = max(self.little, self.checkpoints * max(known)) if known else self.plenty
            for one in quota.allowances:
                yield from self._used(where, quota, one, enough, now)
                yield from self._grace(where, quota, one, now)
            if quota.trouble is not None:
                yield self._finding(
                    where, quota, SERVERS, "warning", f"the quota of {quota.path} is not exact: {quota.trouble}",
                    "a storage server may be down: see lfs check servers, or tell its administrators", now,
                )  # fmt: skip

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        quotas = state.quotas.items()
        quota = next((one for where, one in quotas if alert.subject.startswith(clean(f"disk:{where} "))), None)
        why = why_silent(state, alert.sources)
        if why is not None or quota is None or alert.subject.endswith(SERVERS):
            return why
        if quota.trouble is not None:
            return f"the quota of {quota.path} is not exact: {quota.trouble}"
        is_listed = any(f" {one.owner} " in f"{alert.subject} " for one in quota.allowances)
        is_gone = quota.allowances and not is_listed
        return f"the quota command of {quota.path} no longer reports it" if is_gone else None

    def _used(self, where: str, quota: Quota, one: Allowance, enough: int, now: Instant) -> Iterator[Finding]:
        files = f"{one.used_inodes or 0:,} of {one.hard_inodes or 0:,} files"
        for what, used, limit, text in (
            ("", one.used_bytes, one.hard_bytes, f"{size(one.used_bytes or 0)} of {size(one.hard_bytes or 0)}"),
            (" inodes", one.used_inodes, one.hard_inodes, files),
        ):
            left = "" if what else f", {size(one.left_bytes or 0)} left"
            has_enough = not what and (one.left_bytes is None or one.left_bytes >= enough)
            if used is not None and limit and used >= self.warn * limit and not has_enough:
                yield self._finding(
                    where, quota, f" {one.owner}{what}", "critical" if used >= self.critical * limit else "warning",
                    f"the quota of {one.owner} on {quota.path} is {100.0 * used / limit:.1f}% used: {text}{left}",
                    "delete what is no longer needed, or ask for a larger quota; key 3 shows the disks", now,
                )  # fmt: skip

    def _grace(self, where: str, quota: Quota, one: Allowance, now: Instant) -> Iterator[Finding]:
        for what, grace, used, soft in (
            ("bytes", one.bytes_grace, size(one.used_bytes or 0), size(one.soft_bytes or 0)),
            ("files", one.inodes_grace, f"{one.used_inodes or 0:,}", f"{one.soft_inodes or 0:,}"),
        ):
            if grace is not None:
                is_over = grace == EXPIRED
                fails = "writes fail now: its grace period is over" if is_over else f"writes fail in {grace}"
                yield self._finding(
                    where, quota, f" {one.owner} {what} grace", "critical" if is_over else "warning",
                    f"{one.owner} uses {used} of {quota.path}, more than the soft limit of {soft} ({what}): {fails}",
                    "delete files until the use is below the soft limit", now,
                )  # fmt: skip

    def _finding(
        self, where: str, quota: Quota, what: str, severity: Severity, text: str, advice: str, now: Instant
    ) -> Finding:
        return Finding(
            rule=self.name,
            subject=f"disk:{where}{what}",
            severity=severity,
            summary=f"{text}; read {ago(now - quota.at)} ago",
            evidence=tuple(_line(one) for one in quota.allowances[:10]),
            advice=advice,
            cluster=quota.cluster,
            sources=(quota.source,),
        )


def _line(one: Allowance) -> str:
    limits = f"soft {size(one.soft_bytes)}, " if one.soft_bytes else ""
    hard = f"hard {size(one.hard_bytes)}" if one.hard_bytes else "no hard limit"
    files = "" if one.used_inodes is None else f"; {one.used_inodes:,} files of {one.hard_inodes or 'no limit'}"
    return f"{one.owner}: {size(one.used_bytes or 0)} used, {limits}{hard}{files}"
