"""The daemon's log: a line a happening, each one line, with no secret in it; and what of a State is worth one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from msgspec.structs import replace

from trainmon.model import Alert, Channel, Delivery, Leadership, Source, State
from trainmon.runtime import logs as daemon_log
from trainmon.runtime.logs import AT_MOST, Structured, changes, is_journal, line

ALERT = Alert(
    id="abcdefgh", rule="gpu-lost", subject="gpu:n0/1", severity="critical", summary="GPU 1 is lost", since=1.0,
    found_at=2.0, phase="firing",
)  # fmt: skip


def happened(before: State, after: State) -> list[str]:
    return [event.event for event in changes(before, after)]


def test_a_line_ends_where_it_ends_and_shows_no_secret() -> None:
    nasty = 'a "b" = c\nevent=forged \x1b[31mred https://user:hunter2@host/x'
    text = line({"event": "source", "error": nasty, "empty": "", "none": None, "at": 1.5})
    assert text.count("\n") == 0
    assert text.startswith('event=source error="a \\"b\\" = c')
    assert " at=1.5" in text
    assert "hunter2" not in text
    assert "\x1b" not in text
    assert "empty" not in text
    assert "none=" not in text


def test_journald_gets_the_level_in_its_own_format() -> None:
    record = daemon_log.events.makeRecord(
        daemon_log.events.name, logging.WARNING, "", 0, "firing", (), None, extra={"fields": {"rule": "gpu-lost"}}
    )
    assert Structured(journal=True).format(record) == "<4>event=firing rule=gpu-lost"
    assert Structured(journal=False).format(record).endswith(" level=warning event=firing rule=gpu-lost")
    about = os.fstat(sys.__stderr__.fileno()) if sys.__stderr__ is not None else os.stat_result(range(10))
    assert not is_journal({"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino + 1}"})


def test_what_others_warn_of_is_a_line_as_well() -> None:
    record = logging.LogRecord("trainmon.transport.ssh.client", logging.WARNING, "", 0, "%s is gone", ("n0",), None)
    assert "event=log logger=trainmon.transport.ssh.client" in Structured(journal=True).format(record)
    assert 'message="n0 is gone"' in Structured(journal=True).format(record)


def test_an_alerts_lifecycle_is_logged_step_by_step() -> None:
    firing = State(alerts={ALERT.id: ALERT})
    assert happened(State(), firing) == ["firing"]
    assert happened(firing, firing) == []
    sent = replace(ALERT, delivery=(Delivery(channel="phone", kind="fire", state="sent", at=3.0),))
    assert happened(firing, State(alerts={ALERT.id: sent})) == ["sent"]
    stale = replace(sent, data="stale", data_why="n0 is silent", acknowledged_by="ann")
    assert happened(State(alerts={ALERT.id: sent}), State(alerts={ALERT.id: stale})) == ["data", "acknowledged"]
    over = replace(sent, phase="resolved", ended="over")
    assert happened(State(alerts={ALERT.id: sent}), State(alerts={ALERT.id: over})) == ["resolved"]
    assert happened(State(), State(alerts={ALERT.id: over})) == []


def test_sources_channels_leadership_and_the_ledger_are_logged_when_they_change() -> None:
    source = Source(name="node:n0", kind="node", cluster="lab", health="ok")
    well = State(
        sources={source.name: source}, channels={"phone": Channel(name="phone", type="ntfy", state="ok")},
        leadership=Leadership(holder="us", where="here"),
    )  # fmt: skip
    assert happened(State(), well) == ["duty", "source", "channel"]
    ill = replace(
        well, sources={source.name: replace(source, health="down", error="no route")}, ledger="its disk is full",
        channels={"phone": Channel(name="phone", type="ntfy", state="broken")},
    )  # fmt: skip
    assert happened(well, ill) == ["ledger", "source", "channel"]
    assert happened(well, replace(well, leadership=replace(well.leadership, at=5.0))) == []
    assert happened(ill, replace(ill, sources={})) == ["source"]


def test_ten_thousand_at_once_are_logged_as_a_number() -> None:
    many = {f"a{number}": replace(ALERT, id=f"a{number}") for number in range(10_000)}
    found = list(changes(State(), State(alerts=many)))
    assert len(found) == AT_MOST + 1
    assert found[-1].fields == {"lines": 10_000 - AT_MOST}


def test_with_standard_streams_closed_no_file_gets_their_number(tmp_path: Path) -> None:
    """The log would be written into it: the ledger."""
    program = (
        "import logging, os\n"
        "for stream in range(3): os.close(stream)\n"
        "from trainmon.runtime.logs import log_event, log_to_stderr\n"
        "log_to_stderr()\n"
        "ledger = os.open('ledger', os.O_RDWR | os.O_CREAT)\n"
        "log_event('start')\n"
        "logging.shutdown()\n"
        "os._exit(0 if ledger > 2 and os.fstat(ledger).st_size == 0 else 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 0
