"""Which hosts are connected to, what each one reads, and which pollers run beside them."""

from __future__ import annotations

from collectors.supervisor.supervisor import JOB_ENDED, KEEP_FOR, Supervisor

__all__ = ["JOB_ENDED", "KEEP_FOR", "Supervisor"]
