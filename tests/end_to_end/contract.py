"""The machine-readable contract, version 1, as a table: every field that a script may count on, with its type.

A dict names all fields of an object, a list holds what its items are, a tuple the types that a value may have, a set
the words. Fields may be added, so what is not named here is not wrong; a field that is missing always is.

The verdict is of one evaluation, which does not wait for the `for` duration of a rule: a pending alert counts, unless
only that duration can prove it. blind (exit status 3): nothing that was requested answers. critical (1): something is
critical. warning: something is a warning (0), or a host, a queue or a W&B run does not answer (3). well (0): none of
these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NULL = type(None)
TEXT = (str,)
TEXT_OR_NULL = (str, NULL)
WHOLE = (int,)
WHOLE_OR_NULL = (int, NULL)
REAL = (float, int)
REAL_OR_NULL = (float, int, NULL)
FACT_OR_NULL = (bool, NULL)
HEALTH = {"ok", "late", "down", "off"}

SOURCE = {
    "name": TEXT, "kind": {"node", "slurm", "wandb", "files", "daemon", "prometheus"}, "cluster": TEXT,
    "health": HEALTH, "age_s": REAL_OR_NULL, "error": TEXT_OR_NULL, "hint": TEXT_OR_NULL,
}  # fmt: skip
PROCESS = {
    "pid": WHOLE, "user": TEXT_OR_NULL, "memory_mib": WHOLE_OR_NULL, "command": TEXT_OR_NULL, "instance": TEXT_OR_NULL,
}  # fmt: skip
INSTANCE = {
    "id": TEXT, "profile": TEXT_OR_NULL, "uuid": TEXT_OR_NULL, "memory_used_mib": WHOLE_OR_NULL,
    "memory_total_mib": WHOLE_OR_NULL, "utilization": TEXT,
}  # fmt: skip
GPU = {
    "index": WHOLE, "uuid": TEXT_OR_NULL, "name": TEXT_OR_NULL, "state": {"ok", "lost", "error"}, "error": TEXT_OR_NULL,
    "temperature_c": WHOLE_OR_NULL, "edge_temperature_c": WHOLE_OR_NULL,
    "memory_temperature_c": WHOLE_OR_NULL, "temperature_margin_c": WHOLE_OR_NULL,
    "memory_used_mib": WHOLE_OR_NULL, "memory_total_mib": WHOLE_OR_NULL, "utilization_pct": WHOLE_OR_NULL,
    "power_w": REAL_OR_NULL, "power_limit_w": REAL_OR_NULL, "sm_clock_mhz": WHOLE_OR_NULL, "throttle": [TEXT],
    "mig": FACT_OR_NULL, "ecc_uncorrected": WHOLE_OR_NULL, "ecc_corrected": WHOLE_OR_NULL,
    "remap_pending": FACT_OR_NULL, "remap_failed": FACT_OR_NULL, "last_xid": WHOLE_OR_NULL,
    "last_xid_at": REAL_OR_NULL, "processes": [PROCESS], "instances": [INSTANCE],
    "links": (dict, NULL),
}  # fmt: skip
PORT = {
    "port": TEXT, "state": TEXT_OR_NULL, "link_downed": WHOLE_OR_NULL, "errors": WHOLE_OR_NULL, "rate": TEXT_OR_NULL,
    "link_layer": TEXT_OR_NULL, "bytes": WHOLE_OR_NULL, "counters": (dict,),
}  # fmt: skip
NODE = {
    "name": TEXT, "cluster": TEXT, "health": HEALTH, "age_s": REAL_OR_NULL, "clock_skew_s": REAL_OR_NULL,
    "probe": {"nvml", "nvidia-smi", "amdsmi", "sysfs", "rocm-smi", "sh", "none", "prometheus"},
    "load1": REAL_OR_NULL, "cpu_count": WHOLE_OR_NULL,
    "memory_used_mib": WHOLE_OR_NULL, "memory_total_mib": WHOLE_OR_NULL, "boot_time": REAL_OR_NULL,
    "oom_kills": WHOLE_OR_NULL, "network_errors": WHOLE_OR_NULL, "infiniband": [PORT],
    "gpus_expected": WHOLE_OR_NULL, "scheduler_state": TEXT_OR_NULL, "scheduler_reason": TEXT_OR_NULL, "gpus": [GPU],
}  # fmt: skip
DISK = {
    "host": TEXT, "cluster": TEXT, "path": TEXT, "filesystem": TEXT_OR_NULL, "state": {"ok", "hung", "error"},
    "error": TEXT_OR_NULL, "total_bytes": WHOLE_OR_NULL, "free_bytes": WHOLE_OR_NULL,
    "usable_free_bytes": WHOLE_OR_NULL, "total_inodes": WHOLE_OR_NULL, "free_inodes": WHOLE_OR_NULL,
    "quota": (dict, NULL), "bytes_per_day": REAL_OR_NULL, "full_at": REAL_OR_NULL, "inodes_full_at": REAL_OR_NULL,
    "checkpoints_that_fit": WHOLE_OR_NULL,
}  # fmt: skip
VERDICTS = {
    "healthy", "starting", "evaluating", "saving", "stalled", "hung", "data-stall", "diverged", "dead", "stopped",
    "finished", "queued", "idle", "unknown",
}  # fmt: skip
RUN = {
    "name": TEXT, "cluster": TEXT, "verdict": VERDICTS, "why": TEXT, "step": WHOLE_OR_NULL,
    "target_step": WHOLE_OR_NULL, "loss": REAL_OR_NULL, "grad_norm": REAL_OR_NULL, "step_time_s": REAL_OR_NULL,
    "tokens_per_s": REAL_OR_NULL, "last_step_at": REAL_OR_NULL, "eta_at": REAL_OR_NULL, "job": TEXT_OR_NULL,
    "queued_behind": WHOLE_OR_NULL, "attempt": WHOLE_OR_NULL, "nodes": [TEXT], "ranks": (dict, NULL),
    "wandb": {
        "id": TEXT_OR_NULL, "name": TEXT_OR_NULL, "state": TEXT_OR_NULL, "url": TEXT_OR_NULL,
        "heartbeat_at": REAL_OR_NULL, "active_in_group": WHOLE_OR_NULL, "active": [TEXT], "phase": TEXT_OR_NULL,
        "since": REAL_OR_NULL, "why": TEXT_OR_NULL, "looked_at": REAL_OR_NULL, "before": TEXT_OR_NULL,
        "step": WHOLE_OR_NULL, "created_at": REAL_OR_NULL, "user": TEXT_OR_NULL, "host": TEXT_OR_NULL,
        "commit": TEXT_OR_NULL, "loss_state": TEXT_OR_NULL, "loss_why": TEXT_OR_NULL, "latest": {},
        "samples": [
            {"key": TEXT, "kind": TEXT, "file": TEXT, "step": WHOLE_OR_NULL, "kept": TEXT_OR_NULL},
        ],
    },
    "wandb_file": {
        "host": TEXT_OR_NULL, "path": TEXT_OR_NULL, "format": TEXT_OR_NULL, "rows": WHOLE, "size": WHOLE,
        "offset": WHOLE, "is_behind": FACT_OR_NULL, "damaged": WHOLE, "damaged_before": WHOLE,
        "logged_at": REAL_OR_NULL, "exit_code": WHOLE_OR_NULL, "error": TEXT_OR_NULL, "looked_at": REAL_OR_NULL,
        "loss_state": TEXT_OR_NULL, "loss_why": TEXT_OR_NULL, "name": TEXT_OR_NULL, "step": WHOLE_OR_NULL, "latest": {},
    },
    "log": {
        "host": TEXT_OR_NULL, "path": TEXT_OR_NULL, "age_s": REAL_OR_NULL, "lines_per_s": REAL_OR_NULL, "tail": [TEXT],
    },
    "switches": {
        "kill": {"path": TEXT_OR_NULL, "armed_at": REAL_OR_NULL, "by": TEXT_OR_NULL, "error": TEXT_OR_NULL,
                 "why": TEXT_OR_NULL},
        "save": {"path": TEXT_OR_NULL, "armed_at": REAL_OR_NULL, "by": TEXT_OR_NULL, "error": TEXT_OR_NULL,
                 "taken_at": REAL_OR_NULL},
    },
    "trainer": {
        "at": REAL_OR_NULL, "phase": TEXT_OR_NULL, "step": WHOLE_OR_NULL, "deadline": REAL_OR_NULL,
        "asked": TEXT_OR_NULL, "asked_by": TEXT_OR_NULL, "asked_at": REAL_OR_NULL, "saved_step": WHOLE_OR_NULL,
        "saved_at": REAL_OR_NULL, "ended_at": REAL_OR_NULL, "ended": TEXT_OR_NULL,
    },
    "checkpoints": {
        "latest_committed_step": WHOLE_OR_NULL, "latest_committed_at": REAL_OR_NULL, "writing_step": WHOLE_OR_NULL,
        "steps_at_risk": WHOLE_OR_NULL, "torn": [TEXT],
        "list": [
            {
                "step": WHOLE_OR_NULL, "state": TEXT, "path": TEXT, "bytes": WHOLE_OR_NULL, "at": REAL_OR_NULL,
                "why": TEXT,
            },
        ],
    },
}  # fmt: skip
JOB = {"id": TEXT, "name": TEXT, "state": TEXT}
SPARE = {"cluster": TEXT, "wanted": WHOLE, "idle_healthy": WHOLE_OR_NULL, "drained": WHOLE_OR_NULL}
ALERT = {
    "id": TEXT, "rule": TEXT, "subject": TEXT, "severity": {"critical", "warning", "info"},
    "phase": {"pending", "firing", "recovering"}, "data": {"ok", "stale", "error"}, "since": REAL, "summary": TEXT,
    "evidence": [TEXT], "acknowledged_by": TEXT_OR_NULL, "muted_until": REAL_OR_NULL,
    "delivery": [{"channel": TEXT, "state": TEXT, "at": REAL}],
}  # fmt: skip
SNAPSHOT = {
    "version": WHOLE, "at": REAL, "verdict": {"well", "warning", "critical", "blind"}, "sources": [SOURCE],
    "nodes": [NODE], "disks": [DISK], "jobs": [JOB], "spares": [SPARE], "runs": [RUN], "alerts": [ALERT],
}  # fmt: skip


def breaches(value: Any, wanted: Any = SNAPSHOT, where: str = "$") -> Iterator[str]:
    """A sentence for everything in which a value does not keep the contract."""
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            yield f"{where} is {value!r}, not an object"
            return
        for name, kind in wanted.items():
            if name in value:
                yield from breaches(value[name], kind, f"{where}.{name}")
            else:
                yield f"{where}.{name} is missing"
    elif isinstance(wanted, list):
        if not isinstance(value, list):
            yield f"{where} is {value!r}, not a list"
            return
        for place, item in enumerate(value):
            yield from breaches(item, wanted[0], f"{where}[{place}]")
    elif isinstance(wanted, set):
        if value not in wanted:
            yield f"{where} is {value!r}, not one of {sorted(wanted)}"
    elif not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        yield f"{where} is {value!r}, not {' or '.join(kind.__name__ for kind in wanted)}"
