"""The schedule of what goes wrong, as values."""

from __future__ import annotations

from itertools import combinations

import pytest

from collectors.demo import stories
from collectors.demo.stories import NODES, READER, RUNS, STORIES, Incident, Schedule
from trainmon.lib import ConfigError

GPU_NAMES = {f"{node}/{gpu}" for node in NODES for gpu in range(8)}
NODES_OF = {run.name: set(run.nodes) for run in RUNS}


OF_WANDB = {"spike", "restart", "two-active"}
"""Stories that are seen in W&B."""


def touched(incident: Incident) -> set[str]:
    """Everything that an act leaves its mark on: nodes and runs."""
    if incident.node is None:
        return {incident.victim, "W&B"} if incident.story in OF_WANDB else {incident.victim}
    runs = {name for name, nodes in NODES_OF.items() if incident.node in nodes and incident.story in ("lost", "reboot")}
    return {incident.node, *runs}


def test_every_story_happens_in_the_first_ten_minutes_and_the_first_within_40_s() -> None:
    incidents = Schedule().round(0)
    assert {incident.story for incident in incidents} == {*STORIES, "reboot"}
    assert incidents[0].begins < 40
    assert max(incident.begins for incident in incidents) < 600


def test_nothing_goes_wrong_at_the_very_start() -> None:
    assert Schedule().incidents(0.0) == ()


def test_a_named_story_comes_first_and_all_others_still_come() -> None:
    for name in STORIES:
        incidents = Schedule(name).round(0)
        assert incidents[0].story == name
        assert {incident.story for incident in incidents} >= set(STORIES)


def test_an_unknown_story_is_refused_with_the_names() -> None:
    with pytest.raises(ConfigError) as caught:
        Schedule("fire")
    assert str(caught.value) == f"--demo=fire: unknown story (one of {', '.join(STORIES)})"


def test_the_next_round_has_other_victims() -> None:
    first, second = (Schedule().round(number) for number in (0, 1))
    same = [a.story for a, b in zip(first, second, strict=True) if a.victim == b.victim]
    assert same == ["disk", "wandb-down"], "the shared disk fills in two rounds of three, and there is one W&B"


@pytest.mark.parametrize("first", [None, *STORIES])
def test_acts_that_overlap_have_no_victim_in_common(first: str | None) -> None:
    schedule = Schedule(first)
    incidents = [incident for number in range(12) for incident in schedule.round(number)]
    for one, other in combinations(incidents, 2):
        if one.begins < other.ends and other.begins < one.ends:
            both = touched(one) & touched(other)
            if "wandb-down" not in (one.story, other.story):
                both -= {"W&B"}
            assert not both, (one, other)


def test_the_node_that_reads_the_shared_files_is_spared_what_would_blind_everything() -> None:
    for story in ("node", "login", "lost", "clock"):
        assert all(victim.partition("/")[0] != READER for victim in stories.VICTIMS[story])


def test_every_victim_exists() -> None:
    known = {
        *NODES,
        "W&B",
        *NODES_OF,
        "/fsx",
        "/home",
        *(f"{node}/{gpu}" for node in NODES for gpu in range(8)),
    }
    assert {victim for victims in stories.VICTIMS.values() for victim in victims} <= known


def test_every_story_has_its_length_and_its_victims() -> None:
    assert set(stories.DURATIONS) == set(STORIES) == set(stories.VICTIMS)
