"""Rules about what holds a run up and differs from its peers: slow links, ranks that wait for a file server. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from trainmon.alerting.rules.base import Duration, Unknown, Unseen, of_last_state, of_same_values, silent
from trainmon.alerting.rules.nodes import (
    AWAY,
    EXCLUDE,
    NodeRule,
    affected_run,
    answering_nodes,
    makes_steps,
    node_and_gpu,
    node_finding,
    past_of,
)
from trainmon.alerting.rules.runs.base import STEPS, RunRule
from trainmon.analysis.attempts import LAUNCHERS, RankPlace, place_of, ranks_text
from trainmon.analysis.runs import last_attempts
from trainmon.analysis.runs.peers import (
    BUSY,
    GPU,
    LOADED,
    LOSS,
    PER_SECOND,
    PER_STEP,
    QUIET,
    Outlier,
    losing,
    slower,
    uneven,
)
from trainmon.lib import Instant, ago, counted, group_by, listed, short_number
from trainmon.model import Alert, Finding, Node, RankMap, RankProcess, RankWait, Run, State, verdict_text

# ---- which ranks are there -------------------------------------------------------------------------------------------


@of_last_state
def rank_maps(state: State) -> Mapping[str, RankMap | None]:
    """Where the ranks of the newest attempt of each run are."""
    return {name: one.ranks for name, one in last_attempts(state.attempts.values()).items()}


def ranks_on(state: State, run: str | None, node: str, gpu: int | None = None) -> tuple[str, ...]:
    """The ranks of a run on a node, or on one of its GPUs: `rank 21 (gpu-003 GPU 5)`."""
    known = rank_maps(state).get(run or "")
    own = {} if known is None else known.nodes.get(node, {})
    return tuple(
        str(place)
        for rank, gpus in sorted(own.items())
        if (gpu is None or gpu in gpus) and (place := place_of(rank, known)) is not None
    )


# ---- links of nodes --------------------------------------------------------------------------------------------------

HAS: Mapping[str, tuple[str, str]] = {
    "pcie_width": ("uses {:g} PCIe lanes", "{:g}"),
    "pcie_gen": ("is at PCIe generation {:g}", "at {:g}"),
    "nvlinks_up": ("has {:g} active NVLinks", "{:g}"),
    PER_STEP: ("moves {:.3g} GB per step", "{:.3g}"),
    PER_SECOND: ("moves {:.3g} GB per second", "{:.3g}"),
}
"""What is compared, and the texts of what a link has and of what its peers have."""

ADVICE = (
    "its cable, transceiver or switch port may be at fault: tell the administrators",
    "its slot, riser or board may be at fault: tell the administrators",
    "see which ports NCCL uses there (NCCL_DEBUG=INFO), and what else uses them",
)
"""Of a port, of a GPU, and of a port by what it moves."""

LATE_SLOTS = 3
"""Periods of 30 s after which the counters of a node are not compared."""

TRAFFIC = (PER_STEP, PER_SECOND)
"""What a port moves, in comparison with the others of its node."""

losing_of, slower_of, uneven_of = of_same_values(losing), of_same_values(slower), of_same_values(uneven)


class SlowLink(NodeRule, frozen=True, kw_only=True):
    """A link is slower than those of its peers, or loses packets as no peer does: an InfiniBand or RoCE port, the PCIe
    link or the NVLinks of a GPU. All ranks wait for the slowest link. Its speed is compared with that of the nodes with
    the same hardware, and the growth of its errors, in relation to its traffic, with that of the nodes of its run. The
    bytes per step of a port are compared, too, in relation to the other ports of its node.

    Defaults: our choice: limits differ from site to site, so only what differs from its peers counts
    """

    needs_for = True

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires."""
    keep_firing_for: Duration = 300.0
    """How long the condition must be gone before the alert resolves."""
    peers: int = 3
    """The minimum number of links to compare with."""
    growth: float = 1.0
    """The minimum growth of a counter of errors per second, above that of the peers."""
    times: float = 10.0
    """How many times as fast as that of the peers a counter must grow."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        pasts = {node.name: past_of(state, node.name) for node in answering_nodes(state)}
        for nodes in group_by(answering_nodes(state), partial(_hardware, state)).values():
            for field in ("speeds", "gpu_speeds"):
                speeds = {node.name: own for node in nodes if (own := getattr(pasts[node.name], field))}
                for one in slower_of(f"{nodes[0].name} {field}", speeds, self.peers):
                    yield self._finding(state, one)
        runs = [run for run in state.runs.values() if run.verdict not in AWAY]
        users = Counter(name for run in runs for name in run.spec.nodes)
        for run in runs:
            own = {name: pasts[name] for name in run.spec.nodes if name in pasts}
            newest = max((past.slot for past in own.values()), default=0)
            fabric = {
                name: past.fabric_before if past.slot == newest else past.fabric
                for name, past in own.items()
                if newest - past.slot <= LATE_SLOTS
            }
            for one in losing_of(run.name, fabric, self.growth, self.times, self.peers):
                yield self._finding(state, one)
            alone = {name: past for name, past in fabric.items() if users[name] == 1 and run.verdict in STEPS}
            known = rank_maps(state).get(run.name)
            for one in uneven_of(run.name, alone, self.peers):
                if one.value < one.usual or known is None or 0 not in known.nodes.get(one.node, ()):
                    yield self._finding(state, one)  # rank 0 saves and logs, too

    def _finding(self, state: State, one: Outlier) -> Finding:
        node, others = state.nodes[one.node], f"its {counted(one.peers, 'peer')}"
        gpu = int(one.link.removeprefix(GPU)) if one.link.startswith(GPU) else None
        where = ranks_on(state, affected_run(state, one.node), one.node, gpu)
        port = next((port for port in node.infiniband if port.port == one.link), None)
        if one.what not in LOSS:
            own, usual = HAS.get(one.what, ("runs at {:g} Gb/s", "at {:g} Gb/s"))
            text = f"{own.format(one.value)}, {others} {usual.format(one.usual)}"
        else:
            text = (
                f"counts {rate_of(one.value)} {one.what} per second, {others} {rate_of(one.usual)} for as much traffic"
            )
        details = (
            f"{one.link}: {port.link_layer or 'link layer unknown'}, {port.rate or 'rate unknown'}" if port else "",
            f"{one.what}: {LOSS[one.what]}" if one.what in LOSS else "",
            ", ".join(f"{name} {value:,}" for name, value in port.counters.items() if value) if port else "",
        )
        return node_finding(
            self, node, state, "warning",
            f"{one.link} of {one.node} {text}" + (f": {listed(where, 1)}" if where else ""),
            subject=f"node:{one.node} {one.link}" if gpu is None else f"gpu:{one.node}/{gpu}",
            evidence=(*filter(None, details), *where[:6]),
            advice=f"{ADVICE[2 if one.what in TRAFFIC else gpu is not None]}; {EXCLUDE}",
            known={"what": one.what, "starts": True},
        )  # fmt: skip

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        _, index = node_and_gpu(alert.subject)
        past, link = past_of(state, node.name), alert.subject.partition(" ")[2] or f"{GPU}{index}"
        if link not in past.fabric and all(port.port != link for port in node.infiniband):
            return Unknown(f"{node.name} does not report the links of {link}")
        known, answering = alike(state)[_hardware(state, node)]
        if answering <= min(self.peers, known - 1):
            return Unknown("too few of its peers answer")
        followed = past.fabric.get(link)
        if followed is not None and followed.rates is None:
            return Unknown(f"the counters of {link} have been read for too short a time")
        run, what = state.runs.get(alert.run or ""), alert.known.get("what")
        if what in TRAFFIC and run is not None and run.verdict not in STEPS:
            return Unknown(f"{run.name} is {verdict_text(run.verdict)}: its ports cannot be compared")
        is_idle = any(gpu.index == index and (gpu.utilization_pct or 0) < LOADED and not gpu.mig for gpu in node.gpus)
        least = BUSY if what in TRAFFIC else QUIET if what in LOSS else 0.0
        if least and followed is not None and "bytes" in followed.values:
            is_idle = (followed.rates or {}).get("bytes", 0.0) < least
        return Unknown(f"{link} is idle: it cannot be compared") if is_idle else None


def _hardware(state: State, node: Node) -> tuple[object, ...]:
    """Nodes of which this is the same are compared: their GPUs, and their ports, with those that are gone."""
    ports = max(len(node.infiniband), len(past_of(state, node.name).links))
    return node.cluster, node.gpus[0].name if node.gpus else None, len(node.gpus), ports


@of_last_state
def alike(state: State) -> Mapping[tuple[object, ...], tuple[int, int]]:
    """How many nodes are known of each kind of hardware, and how many of them answer."""
    known, answering = (
        Counter(_hardware(state, node) for node in nodes) for nodes in (state.nodes.values(), answering_nodes(state))
    )
    return {kind: (count, answering[kind]) for kind, count in known.items()}


def rate_of(value: float) -> str:
    """A number per second: `1.62M`, `48.1k`, `8234`, `0.24`."""
    if value >= 9_999.5:
        return short_number(value, 3)
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# ---- ranks that wait for a file server -------------------------------------------------------------------------------

STORAGE = (
    "rpc_", "nfs", "folio_wait", "wait_on_page", "__wait_on_", "io_schedule", "netfs_", "ll_", "cl_", "osc_", "ldlm_",
    "ptlrpc_", "lov_", "mdc_", "request_wait_answer", "fuse_", "ceph_", "cifs_", "smb", "gpfs", "xfs_", "ext4_",
)  # fmt: skip
"""How the functions of the kernel begin in which a process waits for a disk or a file server: NFS, pages of any
filesystem, Lustre, FUSE, Ceph, SMB, GPFS."""

READ_WITHIN = 120.0
"""The processes are read every 30 s."""


class StorageWait(RunRule, frozen=True, kw_only=True):
    """Ranks wait for a file server or a disk: their processes, or their data loaders, are in state D and have hardly
    run for a while. All other ranks wait for them.

    Defaults: our choice: a process that reads much is often in state D, but it runs in between
    """

    longer: Duration = 60.0
    """For how long a process must have hardly run."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        watched = filter(None, map(state.nodes.get, run.spec.nodes))
        read = [(node, node.ranks) for node in watched if node.ranks is not None]
        if run.verdict in AWAY or not any(one.waits for _, ranks in read for one in ranks.r):
            return
        job = state.jobs.get(run.job or "")
        jobs = {None} if job is None else {job.number, *job.components}
        every = [
            (node, one, [wait for wait in one.waits if wait.wchan.startswith(STORAGE)])
            for node, ranks in read
            for one in ranks.r
            if one.job in jobs
        ]
        first = min((LAUNCHERS.index(one.launcher) for _, one, _ in every), default=0)  # the others start these
        rows = [row for row in every if LAUNCHERS.index(row[1].launcher) == first]
        ages = {node.name: now - (ranks.t - (node.clock_skew_s or 0.0)) for node, ranks in read}
        found = [(node, one, wait) for node, one, waits in rows for wait in waits if wait.seconds >= self.longer]
        if now_waiting := [row for row in found if ages[row[0].name] <= READ_WITHIN]:
            others = {one.rank for node, one, waits in rows if not waits and ages[node.name] <= READ_WITHIN}
            yield self._finding(state, run, now_waiting, len(others), now)
        elif found:
            old = found[0][0].name
            yield self.unknown(run, f"the processes of {old} have not been read for {ago(ages[old])}")

    def _finding(
        self, state: State, run: Run, waits: Sequence[tuple[Node, RankProcess, RankWait]], others: int, now: Instant
    ) -> Finding:
        known = rank_maps(state).get(run.name)
        of_ranks = {one.rank: (node.name, wait) for node, one, wait in reversed(waits)}
        nodes = list(dict.fromkeys(node.name for node, *_ in waits))
        mounts = sorted({f"{wait.mount} ({wait.filesystem})" for *_, wait in waits if wait.mount})
        longest = max(wait.seconds for *_, wait in waits)
        return self.finding(
            state,
            run,
            "warning" if makes_steps(run, now) else "critical",
            f"{ranks_text([*of_ranks], known)} wait{'s' if len(of_ranks) == 1 else ''}"
            f" for {listed(mounts, 2) if mounts else 'storage'} for {ago(longest)}"
            + (f"; the {counted(others, 'other')} do{'es' if others == 1 else ''} not" if others else ""),
            node=nodes[0] if len(nodes) == 1 else None,
            sources=tuple(f"node:{name}" for name in nodes),
            evidence=tuple(
                f"{place_of(rank, known) or RankPlace(str(rank), node, '')}: pid {wait.pid} has hardly run for"
                f" {ago(wait.seconds)}, in {wait.wchan}" + (f" on {wait.mount}" if wait.mount else "")
                for rank, (node, wait) in sorted(of_ranks.items(), key=lambda one: one[0])
            )[:10],
            advice=f"see whether the file server answers: dmesg on {listed(nodes, 2)}, and its disks (key 3). "
            "Such a process goes on when the server answers; until then, it may not end when it is killed",
            since=now - longest,
        )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        return silent(state, alert.sources) or super().unseen(state, alert, now)
