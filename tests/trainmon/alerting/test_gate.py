"""What the gate before a restart knows of a node: the rules judge, and what they cannot judge did not pass."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import NOW, SPEC, Scene, facts, samples, slurm
from tests.trainmon.analysis.retries.attempts import ended
from trainmon.alerting.gate import CHECKS, node_checks
from trainmon.alerting.rules import RULES
from trainmon.analysis.retries import record_text
from trainmon.model import Alert, Disk, Finding, Hello, Leadership, NodeCheck, NodeRecord, State

EVERY = tuple(rule() for rule in RULES)
WELL = {
    **dict.fromkeys(CHECKS, ""),
    "leftovers": "it is ALLOCATED in Slurm: a job uses it",
    "/tmp": "/tmp is not sampled now",
}


def scene() -> State:
    """Two nodes that answer, with a running job, and the rules just evaluated."""
    state = Scene().runs().state
    disk = Disk(
        host="n1",
        cluster="prod",
        path="/dev/shm",
        at=NOW,
        state="ok",
        total_bytes=100,
        free_bytes=90,
        usable_free_bytes=90,
        total_inodes=100,
        free_inodes=90,
    )
    return replace(state, evaluated_at=NOW, disks={disk.key: disk})


def of_n1(state: State, since: float = NOW, off: str = "") -> dict[str, NodeCheck]:
    rules = [rule for rule in EVERY if rule.name != off]
    return {one.check: one for one in node_checks(state, rules, ("n1",), "llm", since, NOW)}


def whys(state: State, **fields: Any) -> dict[str, str]:
    return {name: one.why for name, one in of_n1(state, **fields).items()}


def alert(rule: str, subject: str, **fields: Any) -> dict[str, Alert]:
    known: dict[str, Any] = {"id": "a1", "severity": "warning", "summary": "it is broken", "phase": "pending"}
    return {"a1": Alert(rule=rule, subject=subject, node="n1", since=NOW, found_at=NOW, **known | fields)}


def test_every_rule_of_a_check_exists() -> None:
    assert {name for names in CHECKS.values() for name in names} <= {rule.name for rule in RULES}


def test_what_no_rule_finds_passes_if_the_rules_have_their_data() -> None:
    assert whys(scene()) == WELL
    outcomes = {name: one.outcome for name, one in of_n1(scene()).items()}
    assert outcomes == {name: "not checked" if why else "passed" for name, why in WELL.items()}


def test_an_open_alert_is_a_fault_also_while_it_is_pending_and_an_event_is_none() -> None:
    def outcome(check: str, alerts: dict[str, Alert]) -> str:
        return of_n1(replace(scene(), alerts=alerts))[check].outcome

    assert of_n1(replace(scene(), alerts=alert("xid", "gpu:n1/3 xid 79")))["Xids"] == NodeCheck(
        "n1", "Xids", "fault", "it is broken"
    )
    assert outcome("Xids", alert("xid", "gpu:n1/3 xid 31", event=True)) == "passed"
    assert outcome("Xids", alert("xid", "gpu:n1/3 xid 79", phase="recovering")) == "passed"
    assert outcome("Xids", alert("xid", "gpu:n1/3 xid 79", phase="resolved")) == "passed"
    assert outcome("/dev/shm", alert("disk-full", "disk:n1:/dev/shm", severity="critical")) == "fault"
    assert outcome("/dev/shm", alert("disk-full", "disk:n1:/dev/shm")) == "passed"
    assert outcome("/dev/shm", alert("disk-full", "disk:n1:/tmp", severity="critical")) == "passed"


def test_what_does_not_end_a_start_is_noted_and_a_fault_beside_it_counts() -> None:
    def outcome(check: str, alerts: dict[str, Alert]) -> str:
        return of_n1(replace(scene(), alerts=alerts))[check].outcome

    slow = alert("slow-link", "node:n1 mlx5_0/1", known={"starts": True})
    assert outcome("links", slow) == "noted"
    assert (
        outcome("links", slow | {"a2": replace(alert("infiniband-down", "node:n1 mlx5_1/1")["a1"], id="a2")}) == "fault"
    )
    hidden = alert("gpu-missing", "node:n1", summary="no GPU of n1 can be read: NVML: Insufficient Permissions")
    assert outcome("GPUs listed", hidden) == "noted"
    assert outcome("GPUs listed", alert("gpu-missing", "node:n1")) == "fault"


def test_memory_errors_of_before_are_noted_and_new_ones_are_a_fault() -> None:
    """What the rules really say of them."""
    for changes, check, expected in (
        ({"ecc_uncorrected": 2}, "ECC", "noted"),
        ({"remap_pending": True}, "remapped rows", "noted"),
        ({"remap_failed": True}, "remapped rows", "fault"),
    ):
        first = Scene("n2").say("n1", Hello(1, NOW, "n1", probe="nvml"), facts(NOW, **changes), samples(NOW))
        assert outcome_of(first, check) == expected
    assert outcome_of(Scene().say("n1", facts(NOW, ecc_uncorrected=2)), "ECC") == "fault"


def outcome_of(scene: Scene, check: str) -> str:
    """Of a check of n1, by the alerts that its findings become."""
    state = replace(scene.runs().state, evaluated_at=NOW)
    rules = {rule.name: rule for rule in EVERY if rule.name in CHECKS[check]}
    found = (one for rule in rules.values() for one in rule.check(state, NOW))
    alerts = [
        alert(one.rule, one.subject, summary=one.summary, known=one.known)["a1"]
        for one in found
        if isinstance(one, Finding)
    ]
    return of_n1(replace(state, alerts={one.subject: one for one in alerts}))[check].outcome


def test_a_fault_beside_which_the_run_has_trained_for_an_hour_is_noted() -> None:
    began = NOW - 9_000
    last = ended(0, "nccl-timeout", first_step_at=began)
    assert last.end is not None
    last = replace(last, end=replace(last.end, at=NOW - 300))
    for since, attempt, expected in (
        (began - 86_400, last, "noted"),  # a port without a cable
        (NOW - 4_000, last, "noted"),
        (NOW - 4_000, replace(last, end=None, seen_at=NOW), "noted"),  # it still trains
        (NOW - 3_000, last, "fault"),
        (began - 60, replace(last, hung_since=began + 600), "fault"),  # it hung for two hours
        (began - 60, replace(last, first_step_at=None), "fault"),
        (began - 60, replace(last, nodes=("n2",)), "fault"),
        (began - 60, replace(last, run_id="other"), "fault"),
    ):
        open_one = replace(alert("infiniband-down", "node:n1 mlx5_1/1")["a1"], since=since)
        seen = replace(scene(), alerts={"a1": open_one}, attempts={last.attempt_id: attempt})
        assert of_n1(seen)["links"].outcome == expected


def test_what_could_not_be_looked_at_is_not_checked_and_says_why() -> None:
    state = scene()
    assert whys(state, since=NOW + 1)["ECC"] == "the rules have not been evaluated"
    led = replace(state, leadership=Leadership(holder="daemon"))  # which evaluates them
    assert whys(led, since=NOW + 1)["ECC"] == ""
    assert whys(state, off="xid") == WELL | {"Xids": "the rule xid is off"}
    down = replace(state.sources["node:n1"], health="down", error="n1: connection refused")
    refused = replace(state, sources={**state.sources, "node:n1": down})
    assert set(whys(refused).values()) == {"connection refused"}
    assert set(whys(replace(refused, nodes={})).values()) == {"connection refused"}  # it has never answered
    assert set(whys(replace(state, nodes={})).values()) == {"no data now"}
    assert set(whys(replace(state, sources={})).values()) == {"it is not watched"}
    off = replace(state, sources={**state.sources, "node:n1": replace(state.sources["node:n1"], health="off")})
    assert set(whys(off).values()) == {"it is only read during a job"}
    unread = replace(state, nodes={"n1": replace(state.nodes["n1"], gpus=(), gpus_at=None)})
    assert (whys(unread)["ECC"], whys(unread)["Xids"]) == ("the GPUs have not been read",) * 2
    no_ecc = Scene().say("n1", facts(NOW, ecc_uncorrected=None), samples(NOW)).runs().state
    assert whys(replace(no_ecc, evaluated_at=NOW))["ECC"] == "GPU 3 does not report its ECC errors"


def test_a_fault_that_was_seen_counts_after_the_node_has_fallen_silent() -> None:
    state = replace(scene(), alerts=alert("gpu-lost", "gpu:n1/3", phase="firing"))
    late = replace(state, sources={**state.sources, "node:n1": replace(state.sources["node:n1"], health="late")})
    assert {name: one.outcome for name, one in of_n1(late).items()} == {
        **dict.fromkeys(CHECKS, "not checked"), "GPUs listed": "fault",
    }  # fmt: skip


def test_what_may_have_ended_with_the_job_is_no_fault_of_a_node_that_is_only_read_during_it() -> None:
    """Its alert cannot resolve before the next start, which it would keep back."""
    off = replace(scene().sources["node:n1"], health="off")
    for check, one in (
        ("/dev/shm", alert("disk-full", "disk:n1:/dev/shm", severity="critical", phase="firing")),
        ("links", alert("infiniband-flapping", "node:n1 mlx5_0/1", phase="firing")),
        ("GPUs listed", alert("gpu-missing", "node:n1")),  # while the step of the job was torn down
    ):
        state = replace(scene(), alerts=one)
        assert of_n1(state)[check].outcome == "fault"
        ended_job = replace(state, sources={**state.sources, "node:n1": off})
        assert of_n1(ended_job)[check].outcome == "not checked"


def test_a_node_that_slurm_does_not_use_is_not_judged_and_an_idle_one_has_no_leftovers() -> None:
    for state, flags, why in (
        ("IDLE", ("DRAIN",), "IDLE+DRAIN, bad cable"),
        ("DOWN", ("NOT_RESPONDING",), "DOWN+NOT_RESPONDING, bad cable"),
    ):
        known = {"n1": slurm("n1", state, *flags, reason="bad cable")}
        (only,) = of_n1(replace(scene(), scheduler_nodes=known, alerts=alert("gpu-lost", "gpu:n1/3"))).values()
        assert only == NodeCheck("n1", "Slurm", "not used", why)
    idle = replace(scene(), scheduler_nodes={"n1": slurm("n1", "IDLE")})
    assert whys(idle) == WELL | {"leftovers": ""}
    reserved = replace(scene(), scheduler_nodes={"n1": slurm("n1", "RESERVED")})  # perhaps for this run
    assert set(of_n1(reserved)) == set(CHECKS)
    assert SPEC.nodes == ("n1", "n2")


def test_a_node_that_has_failed_far_more_often_than_others_is_noted() -> None:
    """Most of its next attempts run for hours, and after a repair it is called bad for months."""
    record = NodeRecord(
        cluster="prod", ends=5, first_errors=3, expected=0.2, unnamed=0, failures=9, probability=0.999, is_bad=True
    )
    bad = replace(scene(), node_records={"prod/n1": record})
    assert of_n1(bad)["history"] == NodeCheck("n1", "history", "noted", record_text(record))
    doubtful = replace(scene(), node_records={"prod/n1": replace(record, probability=0.9, is_bad=False)})
    assert of_n1(doubtful)["history"] == NodeCheck("n1", "history")
    namesake = replace(scene(), node_records={"lab/n1": record})
    assert "history" not in of_n1(namesake), "it is of a node with that name in another cluster"
