"""Checks quotas: whether the site's command answers in a known form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collectors.quota.command import QuotaQuery, run_query
from trainmon.cli.check.row import Row
from trainmon.lib import Seconds, SystemClock, TrainmonError, size
from trainmon.model import Allowance
from trainmon.transport.shell import Shell

TIME_BOX: Seconds = 30.0


def check_quotas(host: str, shell: Shell, wanted: Sequence[QuotaQuery]) -> Iterator[Row]:
    """The rows of every quota that is read on a host."""
    for one in wanted:
        what = f"quota {one.path}"
        if one.parser == "du":
            yield Row(
                "note", host, what, "check does not run du, because it reads the whole tree; it runs every 6 h at most"
            )
            continue
        try:
            quota = run_query(one, shell, SystemClock(), "", TIME_BOX)
        except TrainmonError as error:
            yield Row("bad", host, what, error.message, error.hint or "run the command there by hand, and fix `quota`")
            continue
        if quota.trouble is not None:
            yield Row("note", host, what, quota.trouble)
        if not quota.allowances:
            yield Row("note", host, what, "no quota is set")
        for allowance in quota.allowances:
            yield Row("ok", host, what, told(allowance))


def told(one: Allowance) -> str:
    """An allowance in a few text."""
    used = "?" if one.used_bytes is None else size(one.used_bytes)
    text = f"{one.whose}: {used} of {'no limit' if one.hard_bytes is None else size(one.hard_bytes)}"
    if one.used_inodes is not None:
        text += f", {one.used_inodes:,} files of {'no limit' if one.hard_inodes is None else f'{one.hard_inodes:,}'}"
    return text
