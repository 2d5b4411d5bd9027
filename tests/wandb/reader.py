"""A person's script with the real `wandb.Api`: it prints what it reads as one line of JSON.

Run as a script: python reader.py entity/project SECONDS. For each run what `runs()` lists of it, its history of the
loss, its console log, its files; `refused` where the server said no.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import wandb


def main() -> None:
    document: dict[str, Any] = {"runs": {}, "refused": None}
    try:
        api = wandb.Api(timeout=int(sys.argv[2]))
        for run in api.runs(sys.argv[1], order="-created_at", lazy=False):
            document["runs"][run.id] = about(run)
    except Exception as error:
        document["refused"] = f"{type(error).__name__}: {error}"
    print(json.dumps(document), flush=True)
    os._exit(0)  # else the SDK waits for its own process, which after a hang it does for ever


def about(run: Any) -> dict[str, Any]:
    return {
        "state": run.state, "group": run.group, "name": run.name, "tags": run.tags, "config": run.config,
        "summary": run.summary_metrics, "keys": sorted((run.history_keys or {}).get("keys", {})),
        "lines": run.history_line_count, "heartbeat": run.heartbeat_at, "host": (run.metadata or {}).get("host"),
        "losses": run.history(keys=["train/loss"], samples=10_000, pandas=False),
        "validation": run.history(keys=["val/loss"], samples=10_000, pandas=False),
        "scanned": len(list(run.scan_history(keys=["train/loss"], use_cache=False))),
        "console": [line.content for line in run.console_logs(last=100)],
        "errors": [line.content for line in run.console_logs(last=100) if line.level == "error"],
        "files": {file.name: file.size for file in run.files()},
    }  # fmt: skip


if __name__ == "__main__":
    main()
