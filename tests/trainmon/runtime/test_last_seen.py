"""The file of what the dashboard showed last: written while it runs and at its end, read at its next start."""

from __future__ import annotations

import stat
from pathlib import Path

from msgspec.structs import replace

from tests.tui.states.states import NOW, calm, run
from trainmon.model import Arrangement, State
from trainmon.runtime.dashboard_files import LastSeenFile


def kept(directory: Path, state: State, name: str = "trainmon.toml") -> LastSeenFile:
    return LastSeenFile(directory, name, lambda: state)


def known() -> State:
    return replace(calm(), runs={"llm": run("llm")}, evaluated_at=NOW)


def test_a_dashboard_that_ends_leaves_what_it_showed_for_the_next_start(tmp_path: Path) -> None:
    first = kept(tmp_path / "state", known())
    assert first.before is None
    first.start()
    first.stop()

    again = kept(tmp_path / "state", known()).before
    assert again is not None
    assert (again.at, again.runs["llm"].verdict) == (NOW, "healthy")
    (file,) = (tmp_path / "state").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert kept(tmp_path / "state", known(), "other.toml").before is None, "another config has its own"


def test_a_start_that_sees_nothing_yet_keeps_what_was_known(tmp_path: Path) -> None:
    kept(tmp_path, known()).step()
    blind = replace(known(), at=NOW + 5.0, started_at=NOW + 4.0, evaluated_at=None, runs={})
    kept(tmp_path, blind).step()
    again = kept(tmp_path, known()).before
    assert again is not None
    assert again.at == NOW


def test_how_the_panes_were_arranged_is_kept_also_by_a_start_that_has_seen_nothing(tmp_path: Path) -> None:
    mine = Arrangement(hidden=frozenset("3"), larger={"2": -1}, sorts={"1": "-loss"}, columns={"1": ("loss", "step")})
    blind = replace(known(), at=NOW + 5.0, started_at=NOW + 4.0, evaluated_at=None, runs={})
    first = kept(tmp_path, blind)
    first.step()
    assert not [*tmp_path.iterdir()], "there is nothing to keep"

    first.arrangement = lambda: mine
    first.step()
    second = kept(tmp_path, known())
    assert second.before is not None
    assert (second.before.at, second.before.arrangement) == (0.0, mine)

    second.arrangement = lambda: mine
    second.step()
    third = kept(tmp_path, known()).before
    assert third is not None
    assert (third.at, third.arrangement) == (NOW, mine)


def test_a_damaged_file_and_a_directory_that_cannot_be_written_stop_nothing(tmp_path: Path) -> None:
    kept(tmp_path, known()).step()
    (file,) = tmp_path.iterdir()
    file.write_text('{"at": "yesterday"}')
    assert kept(tmp_path, known()).before is None
    (tmp_path / "taken").write_text("")
    first = kept(tmp_path / "taken" / "state", known())
    first.start()
    first.stop()
