"""The ledger of one start: where it is, how long it keeps, and what it tells the engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

from trainmon.config import Settings
from trainmon.ledger import KEEP, Ledger
from trainmon.model import ActionChanged, Event, LedgerTrouble
from trainmon.model_actions import Record
from trainmon.state_directory import find

log = logging.getLogger(__name__)


def ledger_of(settings: Settings, submit: Callable[[Event], None], environ: Mapping[str, str] = os.environ) -> Ledger:
    """The ledger, not started yet. What was still open when last written becomes part of the State as it starts."""
    found = find(environ)
    if found.warning is not None:
        log.warning("%s", found.warning)

    def recalled(records: list[Record]) -> None:
        for record in records:
            submit(ActionChanged(record))

    return Ledger(
        found.path,
        lambda words: submit(LedgerTrouble(words)),
        recalled=recalled,
        keep=settings.ledger.keep if settings.ledger is not None else KEEP,
        is_network=found.is_network,
    )
