"""A cluster's disks as its hosts tell of them, through the fold: everything is well until a test says otherwise."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.alerting.rules.asked import findings, why_unknown
from trainmon.alerting.rules.base import Rule
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    Alert,
    Allowance,
    Checkpoint,
    Checkpoints,
    Cluster,
    ClustersChanged,
    DiskSample,
    DiskSamples,
    DisksChanged,
    Event,
    Finding,
    Forecast,
    NodeReading,
    Quota,
    QuotaRead,
    Run,
    RunSpec,
    Source,
    SourceChanged,
    State,
)

NOW = 1_000_000.0
TB = 10**12
HOSTS = ("login1", "n1", "n2")
WELL: dict[str, Any] = {
    "mount": "/fsx", "filesystem": "xfs", "read_only": False, "total_bytes": 100 * TB, "free_bytes": 60 * TB,
    "total_inodes": 10**9, "free_inodes": 9 * 10**8,
}  # fmt: skip


def sample(path: str = "/fsx", **changes: Any) -> DiskSample:
    return DiskSample(path=path, **{**WELL, "mount": path, **changes})


def saved(bytes_: int = TB, every: float | None = 1800.0, at: float = NOW - 600, **changes: Any) -> Checkpoints:
    """A directory of checkpoints on /fsx, the last committed 10 minutes ago."""
    one = Checkpoint(step=100, state="committed", path="/fsx/ckpt/100", layout="dcp", bytes=bytes_, at=at)
    return Checkpoints(
        path="/fsx/ckpt", host="login1", listed_at=NOW, list=(one,), every_s=every, bytes=bytes_, **changes
    )


class Scene:
    """A State that probes and quota commands have told of, and the rules that look at it."""

    def __init__(self) -> None:
        self.now = NOW
        self.state = State(at=NOW)
        self.say(ClustersChanged((Cluster(name="prod", login="login1"),)))
        for host in HOSTS:
            self.tell(host, sample())

    def say(self, *events: Event) -> Scene:
        self.state = reduce(self.state, events, self.now)
        return self

    def tell(self, host: str, *samples: DiskSample) -> Scene:
        return self.say(NodeReading(host, "prod", self.now, DiskSamples(1, self.now, samples)))

    def after(self, seconds: float) -> Scene:
        self.now += seconds
        return self.say()

    def settled(self, **disks: Any) -> Scene:
        """The config's word of /fsx."""
        return self.say(DisksChanged(**{name: {"/fsx": value} for name, value in disks.items()} | _rest(disks)))

    def saves(self, found: Checkpoints | None, **changes: Any) -> Scene:
        """A healthy run that saves there."""
        spec = RunSpec(name="llm", cluster="prod", checkpoints="/fsx/ckpt")
        run = Run(spec=spec, checkpoints=found, **{"verdict": "healthy", **changes})
        self.state = replace(self.state, runs={"llm": run})
        return self

    def foretold(self, forecast: Forecast | None, what: str = "forecast", key: str = "login1:/fsx") -> Scene:
        """What the engine makes of the disk's history."""
        ends = None if forecast is None else forecast.full_at
        name = "full_at" if what == "forecast" else "inodes_full_at"
        disk = replace(self.state.disks[key], **{what: forecast, name: ends})
        self.state = replace(self.state, disks={**self.state.disks, key: disk})
        return self

    def allowed(self, *allowances: Allowance, trouble: str | None = None, at: float | None = None) -> Scene:
        """What the quota command of /fsx said."""
        quota = Quota(
            cluster="prod", host="login1", path="/fsx", at=at or self.now, allowances=allowances, trouble=trouble,
            source="quota:prod:/fsx",
        )  # fmt: skip
        source = Source(
            name="quota:prod:/fsx", kind="files", cluster="prod", answered_at=self.now, period=600.0, phase="up"
        )
        return self.say(QuotaRead(quota), SourceChanged(source))

    def lost(self, name: str, error: str = "no answer in 10s") -> Scene:
        """A source no longer answers."""
        source = self.state.sources[name]
        return self.say(SourceChanged(replace(source, phase="retrying", error=error)))

    def found(self, rule: Rule) -> dict[str, Finding]:
        return {finding.subject: finding for finding in findings(rule, self.state, self.now)}

    def only(self, rule: Rule) -> Finding:
        (finding,) = self.found(rule).values()
        return finding

    def why_unknown(self, rule: Rule, finding: Finding, found_at: float | None = None) -> str | None:
        """Why an alert that was raised by this finding is not over now."""
        assert finding.subject not in self.found(rule)
        return why_unknown(rule, self.state, alert_of(finding, NOW if found_at is None else found_at), self.now)


def alert_of(finding: Finding, found_at: float = NOW) -> Alert:
    return Alert(
        id="a1b2c3d4", rule=finding.rule, subject=finding.subject, severity=finding.severity, summary=finding.summary,
        run=finding.run, node=finding.node, cluster=finding.cluster, sources=finding.sources, phase="firing",
        since=found_at, found_at=found_at,
    )  # fmt: skip


def _rest(disks: dict[str, Any]) -> dict[str, Any]:
    return {name: {} for name in ("usable", "lags") if name not in disks}
