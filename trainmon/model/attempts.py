"""Attempts: one start of a training run, from its first process to its end, why it ended, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.job import RankLook
from trainmon.model.probe_wire import Launcher

# ---- why an attempt ended --------------------------------------------------------------------------------------------

CauseName = Literal[
    "completed",
    "cuda-oom", "host-oom",
    "nccl-timeout", "nccl-network", "rendezvous", "hang",
    "gpu-hardware", "cuda-illegal-access", "device-assert", "cuda-error", "driver-mismatch", "segfault", "node-fail",
    "diverged",
    "disk-full", "quota", "inodes-full", "storage-io", "checkpoint-corrupt", "checkpoint-mismatch",
    "preempted", "requeued", "time-limit", "cancelled-by-user", "kill-switch", "no-restart",
    "import-error", "config-error", "missing-file", "permission",
    "data-error", "dataloader-worker", "network-or-auth", "evaluator",
    "python-exception", "assertion", "device-mismatch",
    "unknown",
]  # fmt: skip
"""The cause of an end. The ledger stores these names as text."""

CAUSES: tuple[CauseName, ...] = get_args(CauseName)

HUNG: frozenset[CauseName] = frozenset({"hang", "nccl-timeout"})
"""Causes of an attempt that made no step for a while before its end."""

Family = Literal[
    "resources", "hardware", "network", "storage", "numerics", "code", "config", "data", "scheduler", "human", "none",
    "unknown",
]  # fmt: skip
Retry = Literal["now", "after-node-swap", "after-change", "never", "unknown"]
"""Whether a retry can help, and after what. `never` also means that none is needed."""

Confidence = Literal["high", "low"]


class LogExcerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive lines of a log."""

    text: str
    first_line: int = 1
    """The number of its first line. Negative numbers count from the end of the log: -1 is its last line."""
    file: str | None = None
    """Its file, if an attempt has several logs."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on a node of the attempt, between its start and its end."""

    name: str
    xids: tuple[int, ...] = ()
    oom_kills: int = 0
    lost_gpus: int = 0
    full_disks: tuple[str, ...] = ()
    """Mount points."""
    rebooted: bool = False
    drained: str | None = None
    """How Slurm lists it, with the reason, if it is DOWN or drained: `DOWN in Slurm (Not responding)`. An administrator
    may do that while the job still runs well."""


class CauseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the end of one attempt. What is not known is null or empty."""

    log: tuple[LogExcerpt, ...] = ()
    """Its head and its tail, in order. A short log is one excerpt. Of several logs, those of one after the other."""
    exit_code: int | None = None
    """As the shell or Slurm says it; -9 means signal 9."""
    signal: int | None = None
    is_exact: bool = False
    """Whether trainmon-run has seen the exit code itself."""
    scheduler_state: str | None = None
    """Slurm's state as sacct writes it, such as `CANCELLED by 1000`."""
    nodes: tuple[NodeFacts, ...] = ()
    wandb_state: str | None = None
    kill_switch: bool = False
    """Whether a kill switch of the run was set before the end."""
    checkpoint_committed: bool = False
    last_step: int | None = None
    target_step: int | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log, or a fact from elsewhere."""

    text: str
    """Without escape sequences and secrets."""
    line: int | None = None
    """As LogExcerpt counts lines; null for a fact that is not from the log."""
    rank: str | None = None
    """The rank that wrote it, as the log writes it."""
    file: str | msgspec.UnsetType = msgspec.UNSET
    """The file that the line stands in, if an attempt has several logs."""


class Classification(msgspec.Struct, frozen=True, kw_only=True):
    """Why the attempt ended."""

    cause: CauseName
    family: Family
    retry: Retry
    confidence: Confidence
    fingerprint: str
    """Equal for the same failure: it does not depend on numbers, addresses, paths, hosts and times."""
    evidence: tuple[Evidence, ...] = ()
    advice: str = ""
    exception: str | None = None
    """The type of the Python exception that ended it, if one did."""
    rank: str | None = None
    """The rank on which it happened first, as the log writes it."""


# ---- whether and how often a run is retried --------------------------------------------------------------------------

RequeueMode = Literal["off", "suggest", "on"]

RetryChange = Literal["batch", "checkpointing", "placement"]
"""What may change between two attempts: the batch size, activation checkpointing, the nodes and GPUs."""

RetryChoice = Literal["now", "after-change", "after-node-swap", "evaluator", "stop", "none"]
"""What to do after an attempt. evaluator: run only the evaluator again. none: nothing needs to be retried."""


class RetryLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How often a run is retried after one cause without net progress."""

    times: int
    within: Seconds | None = None
    """The period in which retries count; null: any time."""
    after_change: tuple[RetryChange, ...] = ()
    """A retry needs a change of one of these."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the config says of the retries of a run."""

    auto_requeue: RequeueMode = "off"
    gate: Literal["seen", "required"] = "seen"
    """What keeps an automatic start back: a fault that was seen; or also a check that could not be made."""
    is_own: bool = False
    """Whether the table of the run sets that, and not `[retry]`. Only then it counts for another user's job."""
    limits: Mapping[str, RetryLimit] = {}
    """By cause: the limits that differ from the defaults."""


# ---- an attempt, its end, and the receipts of its commands -----------------------------------------------------------

EndSource = Literal["lost", "log", "wandb", "process", "receipt", "queue", "accounting"]
"""What reported the end, the least reliable first. lost: nothing did, and the attempt no longer runs."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What trainmon-run has kept of one command. What is not known is null. Times are by our clock."""

    name: str
    """Host, time and pid: no two receipts have the same."""
    path: str
    """Its directory, on the host that reads it."""
    cluster: str
    directory: str
    """The directory of receipts, as RunSpec.receipts; empty: where trainmon-run keeps them without a setting."""
    started_at: Instant
    run: str | None = None
    """The run that the command line of trainmon-run names."""
    host: str | None = None
    pid: int | None = None
    """The process of trainmon-run."""
    command_pid: int | None = None
    command: str | None = None
    """Without secrets."""
    git_commit: str | None = None
    data_manifest: str | None = None
    job_id: str | None = None
    """As Slurm writes it: `88`, or `88_3` for a task of an array."""
    restart: int | None = None
    job_name: str | None = None
    nodes: tuple[str, ...] = ()
    """The nodes of its job."""
    log_path: str | None = None
    """The file of its output, and where its output begins in it."""
    log_offset: int | None = None
    log_by_srun: bool = False
    """Whether its output goes through srun, which alone knows its file."""
    ended_at: Instant | None = None
    exit_code: int | None = None
    signal: int | None = None
    tail_path: str | None = None
    """The file that holds the last part of its output."""
    gone_at: Instant | None = None
    """When it was noticed that its processes are gone and that it has no end."""

    @property
    def key(self) -> str:
        """To what it belongs: the job (`prod/88`), else the named run, else the runs with this directory."""
        if self.job_id is not None:
            return f"{self.cluster}/{self.job_id}"
        return receipts_key(self.cluster, self.run, self.directory)

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None or self.gone_at is not None


def receipts_key(cluster: str, run: str | None, directory: str) -> str:
    """The key of receipts that name no job."""
    return f"{cluster} {directory}" if run is None else f"{cluster} --run {run}"


class AttemptEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    at: Instant
    source: EndSource
    noticed_at: Instant
    """When this program noticed it, by our clock."""
    was_watched: bool = True
    """Whether this program ran then."""
    exit_code: int | None = None
    signal: int | None = None
    scheduler_state: str | None = None
    """Slurm's state, such as OUT_OF_MEMORY or `CANCELLED by ana`."""
    cause: Classification | None = None
    """Why it ended; null while that is not known."""
    judged: tuple[int, ...] = ()
    """How much was known when its cause was determined: how many receipts with an end, whether there was one without,
    whether the last lines were its own (0 or 1), the exit code and the signal (-1: unknown). Empty: nothing, or an
    older version has determined the cause."""
    log_tail: str | None = None
    """The last lines of its log, without secrets."""
    receipt: str | None = None
    """The name of the receipt of trainmon-run that tells its exit code or signal. They are then exact."""
    receipts: int = 0
    """From how many receipts with an end that one was chosen."""
    cut_receipt: str | None = None
    """The name of a receipt without an end whose processes are gone: they were killed together with trainmon-run."""
    has_own_tail: bool = False
    """Whether the last lines are those that its receipt names, and no other attempt wrote any of them."""
    awaits_log: bool = False
    """Whether the end of its log, or its last checkpoint, was still to be read when this was known. Both are added when
    they come."""


Origin = Literal["config", "environment", "command", "wandb", "file", "scheduler", "receipt"]
"""What names a value: the `[[run]]` table, the environment of a process, its command line, W&B, the content of a file,
Slurm, or the receipt of trainmon-run."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt was started with, by the names of the settings. Nested names are joined by dots. No secrets."""

    values: Mapping[str, str] = {}
    left_out: int = 0
    """How many were too many."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that differs between two attempts. Null: it was not set."""

    name: str
    before: str | None
    after: str | None


class AttemptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that identifies what an attempt trains with. It is read once, when the attempt has begun."""

    path: str
    read_at: Instant
    error: str | None = None
    """Why it could not be read."""
    size: int | None = None
    modified_at: Instant | None = None
    sha256: str | None = None
    text: str | None = None
    """All of it, if it is one short line. Untrusted."""
    settings_hash: str | None = None
    """Of a config: the hash of its settings, if they could be read. Comments and the order of lines do not change
    it."""
    settings: Settings | None = None
    """Of a config: its settings, if they could be read."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What endangers an attempt that still runs."""

    what: str = ""
    """After `and`: `hangs`, `its loss has diverged`. Empty: nothing endangers it."""
    since: Instant | None = None
    """When its last step was, if it makes none."""
    cause: Classification | None = None
    """What its cause is if it ends now."""


class RankMap(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ranks of an attempt run, or ran."""

    launcher: Launcher
    """What has numbered them."""
    ranks: int
    """How many there are in all."""
    nodes: Mapping[str, Mapping[int, tuple[int, ...]]] = {}
    """By node and rank: the GPUs on which it holds memory, as far as that is known. A rank that was on two nodes is not
    resolved. Under an empty name: ranks that several processes of one node have."""
    is_ambiguous: bool = False
    """Whether several trainings number their ranks in the same job: then none is resolved."""


class Recomputed(NamedTuple):
    """The steps that an attempt has computed again, compared with those of the attempt before."""

    steps: int
    """How many."""
    verdict: Literal["unknown", "equal", "noise", "other", "differs"] = "unknown"
    """What their losses and gradient norms show. unknown: too few steps. other: what differs may be meant. differs:
    suddenly."""
    text: str = ""
    """In words."""
    until: int = 0
    """The step that it had reached then."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a run. What is not known is null or empty."""

    attempt_id: str
    """`prod/88.1@20261122T183000`: cluster, job, restart and submit time, as numbers of jobs are used again. Without a
    scheduler it names the run and its W&B run, process or log: `video/wandb/…`, `video/wandb-file/…`,
    `video/pid/…`, `video/log/…`."""
    run_id: str
    """The name of the run."""
    cluster: str
    model_family: str | None = None
    labels: Mapping[str, str] = {}

    job_id: str | None = None
    """As Slurm writes it: `88`, or `88_3` for a task of an array."""
    array_id: int | None = None
    restart: int | None = None
    """How often Slurm had restarted the job before."""
    submitted_at: Instant | None = None
    """When Slurm queued this attempt. A requeue sets it anew."""
    wandb_id: str | None = None
    """`entity/project/id`; of the files of a W&B client, `file/`, the run and the directory."""
    pid: int | None = None

    nodes: tuple[str, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    gpus: int | None = None
    """How many GPUs it held."""
    ranks: RankMap | None = None
    """Where its ranks run; null if that is not known."""
    looks: tuple[RankLook, ...] = ()
    """What looks at its ranks have shown: the last answer of each source."""

    started_at: Instant | None = None
    start_is_estimated: bool = False
    """Whether nothing but its log shows when it started."""
    first_step_at: Instant | None = None
    first_step_is_dated: bool = False
    """Whether its line says when that was; else it is the time at which the line was read."""
    seen_at: Instant = 0.0
    """When it was last seen running, by our clock."""
    first_step: int | None = None
    last_step: int | None = None
    target_step: int | None = None
    resumed_from: int | None = None
    """The step of the checkpoint that it loaded."""
    resumed_words: str | None = None
    """The line of the log about that."""
    recomputed: Recomputed | None = None
    last_committed_step: int | None = None
    """The newest committed checkpoint of the run while it ran; of KempnerForge, the one that its pointer names."""
    last_committed_at: Instant | None = None
    """When that was committed, by the clock of its host."""
    unrecognised_at: Instant | None = None
    """When its newest checkpoint of an unknown format was written. Whether that is complete is not known."""
    has_checkpoints: bool = False
    """Whether the directory of its checkpoints was listed."""
    watched_s: Seconds = 0.0
    """How long it was watched while it made steps, and the verdict on its run was known. The next fields are of that
    time."""
    watched_until: Instant | None = None
    hung_s: Seconds = 0.0
    """How long it made no step although it should have, without the silence that still lasts or lasted to its end."""
    hung_since: Instant | None = None
    """When its last step was, if it makes none, or made none to its end."""
    saving_s: Seconds = 0.0
    """How long its saves blocked it, without the present one."""
    saving_since: Instant | None = None
    saves: int = 0
    """How many saves blocked it."""
    settled: tuple[bool, Instant] | None = None
    """Once it has ended: whether its log had been read to its end when its last step and its checkpoints were
    determined, and when that was. The first such time counts; later ones only see the attempts after it."""
    preempted_at: Instant | None = None
    """When Slurm began to preempt its job."""
    counts_steps: bool | None = None
    """Whether the names of its checkpoints count steps; False if they count epochs, for example."""

    command: str | None = None
    """Its command line or batch script, without secrets."""
    config_hash: str | None = None
    """The first 12 digits of the SHA-256 of its W&B settings, else of those in its config file."""
    config_path: str | None = None
    settings: Settings | None = None
    """Its settings in W&B."""
    git_commit: str | None = None
    container: str | None = None
    """The image, with its digest if that is known."""
    data_manifest: str | None = None
    """The version of its data. For a file: its path and its hash."""
    named: Mapping[str, Mapping[str, str]] = {}
    """By field, and by Origin: all values that were named. Which of them counts, analysis.attempts.ORDER says."""
    older: Mapping[str, Instant] = {}
    """By field, or by field and origin (`git_commit wandb`): when its value was last seen, if before seen_at."""
    files: Mapping[str, AttemptFile] = {}
    """By field, `config_path` or `data_manifest`: the file that it names."""
    evaluators: Mapping[str, str] = {}
    """The versions of its evaluators, by name."""
    log_host: str | None = None
    log_path: str | None = None
    log_offset: int | None = None
    """Where its lines begin in that file, in bytes."""
    log_by_srun: bool = False
    """Whether its receipt says that its output goes through srun, and so not into which file."""
    receipt: str | None = None
    """The name of its newest receipt of trainmon-run."""

    end: AttemptEnd | None = None
    outlook: Outlook | None = None
    """What endangers it while it runs; null if that is not known."""
    outlook_at: Instant = 0.0
    """When that was determined, by our clock."""
    reported_end: AttemptEnd | None = None
    """What was reported of its end before it is closed. Its cause is determined then."""
    outlived_by: int = 0
    """How many new steps and checkpoints came more than OUTLIVES after the scheduler's end."""
    outlived_step: int | None = None
    """The last of these steps."""
    outlived_at: Instant | None = None
    """When its trainer last wrote anything after that, by our clock."""
    outlived_pids: tuple[str, ...] = ()
    """Its processes on GPUs then, as `node/pid`."""
    outlived_gone_at: Instant | None = None
    """When that process was seen to be gone."""
    retry_decision: str | None = None
    """What was decided about the next attempt: a RetryChoice."""
    budget_spent: int | None = None
    """How many retries of the budget of its cause are spent."""
    start_was_watched: bool = False
    """Whether this program ran when it started."""

    @property
    def is_reconstructed(self) -> bool:
        """Whether its start or its end was found afterwards."""
        return not self.start_was_watched or (self.end is not None and not self.end.was_watched)

    @property
    def stage(self) -> Literal["running", "ending", "ended"]:
        """`ending`: its end was reported, and its cause is not determined yet."""
        return "ended" if self.end is not None else "running" if self.reported_end is None else "ending"

    @property
    def is_open(self) -> bool:
        return self.end is None

    def is_outlived(self, now: Instant, silence: Seconds) -> bool:
        """Whether its trainer still runs although its job has ended: it is not seen to be gone, and has written
        something within `silence`. One late value proves nothing: a copy may have been completed."""
        seen_at = self.outlived_at or 0.0
        return self.outlived_by > 1 and seen_at > (self.outlived_gone_at or 0.0) and now - seen_at < silence

    @property
    def has_committed(self) -> bool:
        """Whether it has committed a checkpoint of its own: the newest one may be that from which it resumed."""
        step, at, began = self.last_committed_step, self.last_committed_at, self.started_at
        if step is None:
            return False
        if at is not None and began is not None:
            return at >= began
        if self.resumed_from is not None:
            return step > self.resumed_from
        return self.first_step is not None and step >= self.first_step

    @property
    def start(self) -> Instant:
        """When it started, else when it was last seen."""
        return self.started_at or self.seen_at

    @property
    def order(self) -> tuple[Instant, str]:
        """The sort key of the attempts of a run: by their start."""
        return self.start, self.attempt_id

    @property
    def ended_at(self) -> Instant | None:
        return None if self.end is None else self.end.at

    @property
    def told_end(self) -> AttemptEnd | None:
        """Its end, also one that was reported before it is closed."""
        return self.end or self.reported_end

    @property
    def cause(self) -> Classification | None:
        """Why it ended; null while that is not known."""
        return None if self.end is None else self.end.cause

    @property
    def duration_s(self) -> Seconds | None:
        """How long it ran, or has run so far."""
        until = self.seen_at if self.end is None else self.end.at
        return None if self.started_at is None else max(0.0, until - self.started_at)

    @property
    def gpu_seconds(self) -> float | None:
        """Its GPUs times its duration."""
        return None if self.gpus is None or self.duration_s is None else self.gpus * self.duration_s

    @property
    def may_have_later(self) -> bool:
        """Whether a checkpoint of an unknown format is newer than the last committed one."""
        return self.unrecognised_at is not None and self.unrecognised_at > (self.last_committed_at or -1.0)

    @property
    def has_completed(self) -> bool:
        """Whether it ended as planned. One that ended without an error before its target step did not."""
        return self.cause is not None and (self.cause.cause, self.is_unfinished) == ("completed", False)

    @property
    def is_unfinished(self) -> bool:
        """Whether its last step is before its target step."""
        return None not in (self.last_step, self.target_step) and (self.last_step or 0) < (self.target_step or 0)

    @property
    def may_have_gone_on(self) -> bool:
        """Whether it may have made more steps than are known: nobody watched its end, or has read its log since."""
        return self.end is not None and not self.end.was_watched and self.end.log_tail is None

    @property
    def unsaved_steps(self) -> int | None:
        """The steps after its last committed checkpoint; None while that is not known."""
        if self.last_step is None or not self.has_checkpoints or self.counts_steps is False:
            return None
        if self.may_have_later or self.may_have_gone_on:
            return None
        return max(0, self.last_step - (self.last_committed_step or 0))

    @property
    def steps_lost(self) -> int | None:
        """The steps that must be trained again, once it has ended."""
        unsaved = None if self.end is None else self.unsaved_steps
        return 0 if unsaved is not None and self.has_completed else unsaved

    @property
    def lost_share(self) -> float | None:
        """The part of its steps that must be trained again, from 0 to 1; None while that is not known."""
        if self.steps_lost is None or self.last_step is None:
            return None
        first = self.resumed_from or 0 if self.first_step is None else self.first_step - 1
        return min(1.0, self.steps_lost / max(1, self.last_step - first))


# ---- what attempts say of their nodes --------------------------------------------------------------------------------


class NodeUse(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, as it counts for the nodes that it ran on."""

    attempt_id: str
    cluster: str
    run: str
    nodes: tuple[str, ...]
    began: Instant
    until: Instant
    """When it ended, or was last seen."""
    is_open: bool
    failure: CauseName | None = None
    """Its cause, if that may be a single node."""
    first: tuple[str, ...] = ()
    """The nodes that its cause names: where the first error was."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempts of 90 days say of a node."""

    cluster: str = ""
    node: str = ""
    ends: int = 0
    """How many attempts ended on it."""
    first_errors: int = 0
    """In how many of them the first error was on this node."""
    expected: float = 0.0
    """How many first errors a usual node has, in the same time."""
    unnamed: int = 0
    """The other failures in which it took part: of these, no node is known."""
    failures: int = 0
    """Of all nodes of its cluster: the ends by what a single node may cause."""
    probability: float = 0.0
    """That it fails at least five times as often as a usual node of its cluster: from 0 to 1. 0 if there are too few
    failures to say."""
    is_bad: bool = False
    """Whether that is sure enough to act on it."""


class NodeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on a node: an alert, or the first error of an attempt."""

    at: Instant
    cluster: str
    node: str
    what: str
    """The rule of the alert, or `first-error`."""
    text: str
