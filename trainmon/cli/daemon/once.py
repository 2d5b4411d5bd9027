"""trainmon-tui --alerts-only --once: one look at everything, told to whom it concerns, and ended. For cron."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from trainmon.cli.daemon.command import FLUSH, forget_agent
from trainmon.cli.snapshot.command import asked_for, first_full_state
from trainmon.config import Settings
from trainmon.engine.snapshot import exit_status
from trainmon.lib import Instant, Seconds
from trainmon.model import State
from trainmon.runtime.event_log import changes, log_to_stderr, say
from trainmon.runtime.monitor import Monitor

WAIT: Seconds = 60.0
"""The longest wait for hosts, queues and W&B to answer; cron starts the next look after five minutes."""

JUDGED: Seconds = 45.0
"""The longest wait for the look at all of it, and for what it tells: half a minute may pass for company."""

LOOKS = 2
"""What one look finds to be over, the next one tells."""


def look_once(settings: Settings, hosts: Sequence[str], ssh_config: Path | None) -> int:
    """Look, judge by what the ledger remembers, write, send. The exit status is that of `snapshot`."""
    log_to_stderr(logging.WARNING)
    forget_agent()
    parts = Monitor(settings, program="once", ssh_config=ssh_config)
    before = parts.engine.state
    parts.start()
    try:
        state = first_full_state(parts, WAIT)
        if parts.telling is not None:
            # Only now: what is not seen yet is no recovery, and the hold of nothing waits for it.
            parts.telling.start()
            state = judged(parts, JUDGED)
            parts.telling.sign_of_life(state)
        for told in changes(before, state):
            say(told.happening, told.level, **told.fields)
    finally:
        parts.leave(None, FLUSH)
        logging.shutdown()
    return exit_status(state, asked_for(settings, hosts))


def judged(parts: Monitor, patience: Seconds) -> State:
    """The State once all that was seen was gone through by what is remembered, and nothing of it waits to be told."""
    ours = parts.engine.state.looked_at
    looked: list[Instant | None] = []
    done = threading.Event()

    def seen(state: State) -> None:
        if state.duty.holder == "nobody":
            return
        if state.looked_at not in looked:
            looked.append(state.looked_at)
        if state.duty.holder != "us" and state.looked_at != ours:
            done.set()  # another program judges and tells, and has said what there is
        if len(looked) > LOOKS and not parts.is_about_to_tell(patience):
            done.set()

    cancel = parts.subscribe(seen)
    done.wait(patience)
    cancel()
    return parts.engine.state
