"""A program that has the duty and gives no sign of life: who stands by tells so, once."""

from __future__ import annotations

import os
from pathlib import Path

from tests.trainmon.notify.office_scene import Phone, Scene, Shifted, opened, until
from trainmon.ledger.duty import DutyNote, Holder
from trainmon.model import State
from trainmon.notify.vigil import GAP, SILENT, Vigil

HOLDER = Holder(pid=4711, host="bastion", name="theirs")
CHANNELS = ("phone",)


def note(last_tick_at: float | None) -> DutyNote:
    return DutyNote(holder=HOLDER, program="alerts-only", started_at=0.0, written_at=0.0, last_tick_at=last_tick_at)


def told(vigil: Vigil, of: DutyNote | None, *, start: float, seconds: float, every: float = 2.0) -> list[str]:
    looks = (start + every * number for number in range(int(seconds / every)))
    found = (vigil.look(of, mono, mono, CHANNELS) for mono in looks)
    return [notice.title for notice in found if notice is not None]


def test_one_that_goes_on_is_nothing_to_tell() -> None:
    vigil = Vigil()
    for minute in range(60):
        assert told(vigil, note(minute * 60.0), start=minute * 60.0, seconds=60) == []


def test_one_that_is_stopped_is_told_of_once_and_that_it_goes_on() -> None:
    vigil = Vigil()
    assert told(vigil, note(5.0), start=0.0, seconds=SILENT) == []
    assert told(vigil, note(5.0), start=SILENT, seconds=7_200) == ["Alerts may be told to nobody"]
    assert told(vigil, note(9.0), start=9_000, seconds=SILENT) == ["Alerts are told again"]


def test_one_that_never_wrote_anything_is_told_of() -> None:
    assert told(Vigil(), None, start=0.0, seconds=2 * SILENT) == ["Alerts may be told to nobody"]


def test_while_we_were_stopped_ourselves_nothing_is_known_of_the_other() -> None:
    vigil = Vigil()
    assert told(vigil, note(5.0), start=0.0, seconds=60) == []
    assert told(vigil, note(5.0), start=10 * SILENT, seconds=SILENT - 60 - 2 * GAP) == []


def test_what_to_do_names_the_process() -> None:
    vigil = Vigil()
    found = [vigil.look(note(5.0), 10.0 * number, 0.0, CHANNELS) for number in range(40)]
    (notice,) = [one for one in found if one is not None]
    assert "alerts-only (pid 4711 on bastion)" in notice.lines[0]
    assert "5m" in notice.lines[0]
    assert "`kill -CONT 4711`" in notice.lines[2]


def test_who_stands_by_tells_it_by_its_own_channels(tmp_path: Path) -> None:
    clock, phone, theirs = Shifted(), Phone(), Phone()
    with opened(tmp_path, theirs) as first:
        now = first.clock.now()
        first.office.tick(State(at=now, started_at=now, looked_at=now))
        first.until_noted()
        second = Scene(tmp_path, phone, clock=clock)
        second.start()
        try:
            until(lambda: second.holder == "other")

            def passes() -> bool:
                clock.passed += GAP
                second.office.say(None)
                return bool(phone.taken)

            until(passes)
        finally:
            second.stop(0.0)
    (message,) = phone.taken
    assert message.severity == "critical"
    assert f"pid {os.getpid()}" in message.body
    assert theirs.taken == []
