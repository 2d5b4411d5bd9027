"""Attempts of a run `llm` that ended, one after the other."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from trainmon.model import Attempt, AttemptEnd, AttemptFile, CauseName, Classification, Evidence

BEGIN = 1_700_000_000.0
HOUR = 3_600.0


def ended(number: int, cause: CauseName, *facts: str, fingerprint: str = "f", **more: Any) -> Attempt:
    """The attempt of a number, which ran for half an hour."""
    began = BEGIN + number * HOUR
    found = Classification(
        cause=cause,
        family="unknown",
        retry="unknown",
        confidence="high",
        fingerprint=fingerprint,
        evidence=tuple(Evidence(text=fact) for fact in facts),
    )
    end = AttemptEnd(at=began + HOUR / 2, source="queue", noticed_at=began + HOUR / 2, cause=found)
    known: dict[str, Any] = {"run_id": "llm", "cluster": "prod", "job_id": "88", "nodes": ("n1",), "gpus": 8}
    known |= {"attempt_id": f"prod/88@{number:04}", "restart": number, "started_at": began, "end": end}
    return Attempt(**known | more)


def with_config(attempt: Attempt, digest: str, path: str = "/fsx/llm/config.yaml") -> Attempt:
    """The attempt with a config file that had this hash when it began."""
    file = AttemptFile(path=path, read_at=BEGIN, sha256=digest * 8, settings_hash=digest)
    return replace(attempt, files={"config_path": file}, config_hash=digest, config_path=path)
