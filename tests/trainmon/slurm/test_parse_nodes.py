"""What sinfo says of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmon.slurm.parse import instant, read_nodes, read_reason, read_state

WRITTEN = Path(__file__).parents[2] / "written" / "slurm"


@pytest.mark.parametrize(
    ("text", "state", "flags"),
    [
        ("idle", "IDLE", ()),
        ("mixed-", "MIXED", ("PLANNED",)),
        ("allocated+", "ALLOCATED", ("COMPLETING",)),
        ("alloc*", "ALLOCATED", ("NOT_RESPONDING",)),
        ("completing", "COMPLETING", ()),
        ("comp", "COMPLETING", ()),
        ("drained", "IDLE", ("DRAIN",)),
        ("drained*", "IDLE", ("DRAIN", "NOT_RESPONDING")),
        ("drain$", "IDLE", ("DRAIN", "MAINTENANCE")),
        ("draining@", "ALLOCATED", ("DRAIN", "REBOOT_REQUESTED")),
        ("drng^", "ALLOCATED", ("DRAIN", "REBOOT_ISSUED")),
        ("down*", "DOWN", ("NOT_RESPONDING",)),
        ("down~", "DOWN", ("POWERED_DOWN",)),
        ("idle~", "IDLE", ("POWERED_DOWN",)),
        ("idle#", "IDLE", ("POWERING_UP",)),
        ("idle!", "IDLE", ("POWER_DOWN",)),
        ("idle%", "IDLE", ("POWERING_DOWN",)),
        ("maint*", "IDLE", ("MAINTENANCE", "NOT_RESPONDING")),
        ("reboot^", "IDLE", ("REBOOT_REQUESTED", "REBOOT_ISSUED")),
        ("fail", "IDLE", ("FAIL",)),
        ("failing*", "ALLOCATED", ("FAIL", "NOT_RESPONDING")),
        ("inval", "UNKNOWN", ("DRAIN", "INVALID_REG")),
        ("planned", "IDLE", ("PLANNED",)),
        ("blocked", "IDLE", ("BLOCKED",)),
        ("reserved", "IDLE", ("RESERVED",)),
        ("powered_down", "IDLE", ("POWERED_DOWN",)),
        ("future", "FUTURE", ()),
        ("unk*", "UNKNOWN", ("NOT_RESPONDING",)),
        ("teleporting", "TELEPORTING", ()),
        ("IDLE+DRAIN+NOT_RESPONDING", "IDLE", ("DRAIN", "NOT_RESPONDING")),
        ("DOWN*+DRAIN", "DOWN", ("NOT_RESPONDING", "DRAIN")),
        ("MIXED+CLOUD+PLANNED", "MIXED", ("CLOUD", "PLANNED")),
        ("ALLOCATED+COMPLETING", "ALLOCATED", ("COMPLETING",)),
        ("IDLE+MAINT", "IDLE", ("MAINTENANCE",)),
        ("DOWN+INVALID_REG+DRAIN", "DOWN", ("INVALID_REG", "DRAIN")),
    ],
)
def test_a_state_is_a_word_and_flags(text: str, state: str, flags: tuple[str, ...]) -> None:
    assert read_state(text) == (state, flags)


@pytest.mark.parametrize("version", sorted(path.name for path in WRITTEN.iterdir() if path.is_dir()))
def test_a_lost_gpu_is_known_from_the_reason(version: str) -> None:
    nodes = {node.name: node for node in read_nodes((WRITTEN / version / "nodes.txt").read_text(), "prod")}
    assert len(nodes) == 11
    lost = nodes["gpu-008"]
    assert (lost.is_drained, lost.is_usable, lost.lost_gpus, lost.reason_by) == (True, False, 1, "root")
    assert lost.reason_at == instant("2026-03-01T23:10:00")
    silent = nodes["gpu-005"]
    assert (silent.reason, silent.flags) == ("Not responding", ("DRAIN", "NOT_RESPONDING"))
    assert nodes["gpu-002"].partitions == ("h100", "debug")
    assert (nodes["gpu-014"].is_usable, nodes["gpu-014"].reason, nodes["gpu-014"].reason_at) == (True, None, None)
    assert nodes["gpu-014"].gres == "gpu:h100:8(S:0-1)"
    unusable = {name for name, node in nodes.items() if not node.is_usable}
    assert unusable >= {"gpu-005", "gpu-008", "gpu-011", "gpu-012", "gpu-013", "gpu-016"}


def test_who_set_a_reason_is_taken_from_its_end() -> None:
    assert read_reason("Not responding [slurm@2026-11-21T12:03:00]") == ("Not responding", "slurm", 1795262580.0)
    assert read_reason("see [ticket 9]") == ("see [ticket 9]", None, None)
    assert read_reason("none") == (None, None, None)
