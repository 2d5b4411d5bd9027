"""Nodes that should have GPUs and of which none can be read: what says that they should, and why none can. Pure."""

from __future__ import annotations

from trainmon.alerting.rules.base import is_seen
from trainmon.alerting.rules.runs import LIVING
from trainmon.alerting.rules.visibility import Whose
from trainmon.model import Node, NodeHistory, Severity, State

NVML = "NVML: "
"""What the note of a node begins with whose NVML does not start."""

MISSING_LIBRARY = "NVIDIA GPUs, but no"
"""In the note of a node whose PCI bus shows GPUs, and that has no NVML."""

MISMATCH = "version mismatch"
"""A driver that was updated under running programs: these go on, and new ones do not start."""

PERMISSION = "Insufficient Permissions"
NOT_LOADED = "Driver Not Loaded"
"""Where nothing says that there are GPUs, this is a login node with the libraries of all others."""

NEW = NodeHistory()


def none_listed(node: Node, state: State) -> str | None:
    """In words that a node should have GPUs of which none can be read; None where some are, or none is expected."""
    if node.gpus and (node.greeted_at is None or (node.gpus_at or 0.0) >= node.greeted_at):
        return None
    said = _evidence(node, state)
    if said:
        return f"no GPU of {node.name} can be read: {', '.join((*said, _why(node)))}"
    return f"no GPU of {node.name} can be read: {node.note}" if _has_a_driver(node) else None


def how_bad(node: Node, state: State, whose: Whose) -> Severity:
    """What starts there fails at once: critical, unless Slurm starts nothing there, or what runs may go on."""
    told = state.scheduler_nodes.get(node.name)
    run = whose.run(node.name)
    if told is not None and not told.is_usable and not whose.holds(node.name):
        return "warning"
    if PERMISSION in (node.note or ""):
        return "warning"  # jobs may be let in where we are not
    goes_on = (run is not None and run.verdict in LIVING) or not _evidence(node, state)
    return "warning" if MISMATCH in (node.note or "") and goes_on else "critical"


def still_none(node: Node, state: State) -> str | None:
    """Why it is not over that no GPU was listed, though nothing says any more that some should be."""
    told = state.scheduler_nodes.get(node.name)
    if node.gpus or (told is not None and is_seen(state.sources.get(f"slurm:{told.cluster}"))):
        return None
    return f"{node.name} still lists no GPU"


def _evidence(node: Node, state: State) -> tuple[str, ...]:
    """All that says that there should be GPUs. In the cgroup of a job without GPUs none are shown."""
    told = state.scheduler_nodes.get(node.name)
    before = max(len(node.gpus), state.node_histories.get(node.name, NEW).gpus_most)
    said = []
    if told is not None and told.gpus and (not node.confined or _holds_gpus(node, state)):
        said.append(f"Slurm says gpu:{told.gpus}")
    if node.gpus_expected:
        said.append(f"its PCI bus shows {node.gpus_expected}")
    if before and not node.confined:
        said.append(f"it listed {before} before")
    return tuple(said)


def _holds_gpus(node: Node, state: State) -> bool:
    """Whether a job that runs there holds GPUs."""
    return any(job.gpus and node.name in job.nodes and job.stage == "running" for job in state.jobs.values())


def _why(node: Node) -> str:
    note, trouble = node.note or "", node.troubles.get("gpu")
    if note.startswith(NVML):
        return f"NVML lists none: {note.removeprefix(NVML)}"
    if node.probe == "nvml":
        return "NVML lists none"
    if node.probe == "nvidia-smi":
        return f"nvidia-smi lists none: {trouble}" if trouble else "nvidia-smi lists none"
    return "and there is neither NVML nor nvidia-smi: is the driver installed?"


def _has_a_driver(node: Node) -> bool:
    """Whether the words of NVML alone show that there are GPUs."""
    note = node.note or ""
    if MISSING_LIBRARY in note:
        return True
    return note.startswith(NVML) and NOT_LOADED not in note and PERMISSION not in note
