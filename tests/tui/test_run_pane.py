"""The detail of one run, as lines."""

from __future__ import annotations

from tests.tui.states import NOW, calm, run, troubled
from trainmon.model import Progress, State, Switch
from trainmon.text import cells
from tui.lines import width_of
from tui.panes.log import title, why_nothing
from tui.panes.run import lines, switch, wrapped


def text_of(name: str, state: State, width: int = 60) -> list[str]:
    return ["".join(span.text for span in spans) for spans in lines(state.runs[name], state, NOW, width)]


def test_it_says_verdict_why_numbers_switches_log_and_nodes() -> None:
    text = text_of("llm-7b-a", troubled())

    assert text[0] == "▲ hung"
    assert "step          81,204 of 120,000" in text
    assert "usually       every 4.1s" in text
    assert "kill switch   not armed" in text
    assert any(line.startswith("log           gpu-001:/scratch") for line in text)
    assert "nodes         gpu-001  8 GPUs  max 64°C" in text


def test_a_node_that_is_silent_is_said_to_be() -> None:
    lost = run("x")
    state = troubled()
    on_silent = State(
        at=NOW, runs={"x": lost}, sources={"node:gpu-001": state.sources["node:gpu-005"]}, nodes=state.nodes
    )

    text = text_of("x", on_silent)

    assert "nodes         gpu-001  heard 42s ago" in text
    assert "              gpu-002  not heard" in text


def test_skipped_and_nan_iterations_show_only_when_there_are_some() -> None:
    bad = run("x", progress=Progress(step=5, skipped=3, nan_iterations=2))
    state = State(at=NOW, runs={"x": bad, "y": run("y")})

    assert "skipped       3 iterations!" in text_of("x", state)
    assert "nan           2 iterations!" in text_of("x", state)
    assert not any(line.startswith(("skipped", "nan  ")) for line in text_of("y", state))


def test_each_state_of_a_switch_has_its_words() -> None:
    def words(found: Switch | None) -> str:
        return "".join(span.text for span in switch("kill", found, NOW))[14:]

    armed = Switch(path="k", exists=True, armed_at=NOW - 600.0, by="ann", why="wrong data")

    assert words(None) == "not configured"
    assert words(Switch(path="k", exists=False)) == "not armed"
    assert words(Switch(path="k", exists=False, taken_at=NOW - 30.0)) == "taken 30s ago"
    assert words(Switch(path="k", exists=None, error="permission denied")) == "? permission denied"
    assert words(armed) == "ARMED 10m ago by ann: wrong data"


def test_a_long_reason_goes_over_several_lines_none_too_wide() -> None:
    pieces = wrapped("no step for 11 m (usual 4.1 s), GPUs at 100 % and low power", 20)

    assert len(pieces) > 2
    assert all(cells(piece) <= 20 for piece in pieces)


def test_no_line_of_a_calm_run_is_wider_than_the_pane() -> None:
    state = calm()

    assert all(width_of(spans) <= 50 for spans in lines(state.runs["llm-70b"], state, NOW, 50))


def test_a_log_without_lines_says_why() -> None:
    assert why_nothing(None, None) == "No run is selected."
    assert why_nothing(None, "gone") == "gone is not watched any more."
    assert why_nothing(run("x", log=None), "x") == "x has no log: set `log` in its [[run]] table."
    assert why_nothing(calm().runs["llm-70b"], "llm-70b") is None


def test_the_title_of_a_log_names_run_host_and_path() -> None:
    one = calm().runs["llm-70b"]
    assert one.log is not None

    assert title(one, one.log, 60) == "llm-70b  gpu-001:/scratch/llm-70b/slurm-418190.out"
    assert title(one, one.log, 40) == "llm-70b  gpu-001:…m-70b/slurm-418190.out"
