"""Hosts that cannot be reached, came up anew, or whose clock is off."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import NOW, Scene, host, job, slurm
from trainmon.alerting.rules.nodes import ClockSkew, NodeRebooted, NodeUnreachable
from trainmon.model import Finding, Hello, HostSample, Source, SourceChanged, SourceRemoved

AWAY, REBOOTED, SKEW = NodeUnreachable(), NodeRebooted(), ClockSkew()

TROUBLE = {"clock-skew": lambda scene: scene.say("n1", HostSample(1, scene.now + 60))}
"""What makes each rule find something on n1, which then falls silent: see test_silent_nodes."""


def only(found: dict[str, Finding], subject: str = "node:n1") -> Finding:
    assert list(found) == [subject]
    return found[subject]


def test_well_nodes_say_nothing() -> None:
    for rule in (AWAY, REBOOTED, SKEW):
        assert Scene().runs().found(rule) == {}


def test_nodes_are_not_unreachable_because_their_prometheus_does_not_answer() -> None:
    server = Source(name="prometheus:prod:dcgm", kind="prometheus", cluster="prod", phase="retrying", error="no answer")
    scene = Scene().runs().lost(None, phase="up", via=server.name, period=15.0).silent(300.0)
    assert only(scene.found(AWAY)).summary == "n1 is late: no new sample; last data 5m ago"
    assert scene.reduce(SourceChanged(server)).found(AWAY) == {}


# ---- unreachable -----------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_answer_is_critical_under_a_run() -> None:
    scene = Scene().runs().silent(90.0).lost()
    finding = only(scene.found(AWAY))
    assert (finding.severity, finding.run, finding.since, finding.fires_at_once) == ("critical", "llm", NOW, True)
    assert finding.summary == "n1 is unreachable: no answer in 10s; last data 1m ago"
    assert "ssh n1" in finding.advice
    assert finding.evidence == ("Slurm: ALLOCATED",)


def test_a_way_to_a_node_that_is_broken_while_its_run_steps_on_is_no_code_red_until_the_steps_end() -> None:
    scene = Scene().runs().silent(90.0).lost().steps()
    finding = only(scene.found(AWAY))
    assert finding.severity == "warning"
    assert finding.summary.endswith("last data 1m ago; llm still trains, its last step was 0s ago")
    assert only(scene.silent(300.0).found(AWAY)).severity == "critical", "no step since"


def test_a_node_that_was_not_reached_since_the_restart_is_no_code_red_while_its_run_makes_steps() -> None:
    scene = Scene().runs()
    scene.state = replace(scene.state, started_at=NOW)
    scene.lost(answered_at=None)
    assert only(scene.silent(25.0).steps().found(AWAY)).severity == "critical", "the step may be from before the start"
    assert only(scene.silent(25.0).steps().found(AWAY)).severity == "warning"


def test_a_step_that_a_shared_disk_shows_late_is_no_sign_of_life_of_a_node() -> None:
    scene = Scene().runs().silent(20.0).steps().silent(45.0).lost()
    assert only(scene.found(AWAY)).severity == "critical"


def test_a_node_of_no_run_is_a_warning_and_the_hold_counts_from_its_last_word() -> None:
    finding = only(Scene().silent(20.0).lost().found(AWAY))
    assert (finding.severity, finding.fires_at_once) == ("warning", False)


def test_a_node_that_never_answered_says_so() -> None:
    scene = Scene("n2").lost("the name is not known", hint="see ~/.ssh/config")
    finding = only(scene.found(AWAY))
    assert finding.summary == "n1 is unreachable: the name is not known; no data yet"
    assert (finding.fires_at_once, finding.advice) == (False, "see ~/.ssh/config")


def test_a_login_that_waits_for_a_person_is_no_dead_node() -> None:
    scene = Scene().runs().silent(90.0).lost("a passphrase is wanted", phase="held", hint="press L to log in again")
    finding = only(scene.found(AWAY))
    assert (finding.severity, finding.advice) == ("warning", "press L to log in again")
    assert finding.summary.startswith("n1 waits for a login: a passphrase is wanted")


def test_a_node_of_a_run_whose_first_login_is_slow_is_critical_after_two_minutes() -> None:
    scene = Scene().runs().lost(None, phase="connecting", answered_at=None, login_since=NOW)
    finding = only(scene.silent(119.0).found(AWAY))
    assert finding.severity == "warning"
    assert finding.summary.startswith("n1 is unreachable: its first login is not finished; ")
    assert only(scene.silent(1.0).found(AWAY)).severity == "critical"


def test_a_node_that_is_not_wanted_now_is_no_fault() -> None:
    """It lets people in for a job alone, and the job has ended."""
    scene = Scene().silent(90.0).lost()
    finding = only(scene.found(AWAY))
    scene.lost(None, phase="off", hint="it accepts only users with a running job there")
    assert scene.found(AWAY) == {}
    assert scene.why_unknown(AWAY, finding) is None


def test_a_connection_that_is_open_and_sends_nothing_is_reported_after_two_minutes() -> None:
    scene = Scene().silent(60.0)
    assert scene.state.sources["node:n1"].health == "late"
    assert scene.found(AWAY) == {}
    finding = only(scene.silent(70.0).found(AWAY))
    assert "n1 is late: connected, but no new sample; last data 2m ago" in finding.summary


def test_what_this_program_slept_is_not_its_silence() -> None:
    scene = Scene()
    scene.after(3_600.0)
    scene.state = replace(scene.state, clock_jumped_at=scene.now - 5)
    assert scene.found(AWAY) == {}


def test_it_is_over_when_it_answers_and_not_known_before_and_never_when_it_is_watched_no_more() -> None:
    scene = Scene().silent(90.0).lost()
    finding = only(scene.found(AWAY))
    scene.lost(None, phase="connecting")
    assert scene.found(AWAY) == {}
    assert scene.why_unknown(AWAY, finding) == "no data from n1 yet"
    scene.well("n1")
    assert scene.why_unknown(AWAY, finding) is None
    scene.reduce(SourceRemoved("node:n1"))
    assert scene.why_unknown(AWAY, finding) == "n1 is no longer watched"


def test_a_node_that_slurm_has_switched_off_is_no_fault_unless_a_run_is_on_it() -> None:
    scene = Scene().scheduler(slurm("n1", "IDLE", "POWERED_DOWN"), slurm("n2")).silent(90.0)
    finding = only(Scene().silent(90.0).lost().found(AWAY))
    assert scene.lost().found(AWAY) == {}
    assert scene.why_unknown(AWAY, finding) is None
    scene = Scene().runs().scheduler(slurm("n1", "ALLOCATED", "REBOOT_REQUESTED"), slurm("n2")).silent(90.0)
    assert only(scene.lost().found(AWAY)).severity == "critical"


def test_a_run_that_waits_again_is_named_and_is_not_on_the_node() -> None:
    scene = Scene().runs(job(state="PENDING", started_at=None, nodes=())).silent(90.0).lost()
    run = replace(scene.state.runs["llm"], verdict="queued")
    scene.state = replace(scene.state, runs={"llm": run})
    finding = only(scene.found(AWAY))
    assert (finding.severity, finding.run) == ("warning", "llm")


def test_a_node_of_a_run_that_a_person_stopped_is_a_warning_that_names_it() -> None:
    scene = Scene().runs().silent(90.0).lost()
    scene.state = replace(scene.state, runs={"llm": replace(scene.state.runs["llm"], verdict="stopped")})
    finding = only(scene.found(AWAY))
    assert (finding.severity, finding.run) == ("warning", "llm")


# ---- rebooted --------------------------------------------------------------------------------------------------------


def rebooted(scene: Scene) -> Scene:
    scene.after(300.0).well("n2")
    return scene.say("n1", Hello(1, scene.now, "n1", probe="nvml", boot_time=scene.now - 40))


def test_a_node_that_came_up_again_is_reported_once() -> None:
    scene = rebooted(Scene().runs())
    finding = only(scene.found(REBOOTED))
    assert (finding.severity, finding.event, finding.since) == ("critical", True, NOW + 260)
    assert finding.summary == "n1 rebooted 40s ago"
    scene.silent(1_000.0)
    assert only(scene.found(REBOOTED)).since == NOW + 260
    assert scene.silent(2_000.0).found(REBOOTED) == {}


def test_a_reboot_that_was_requested_from_slurm_is_an_information() -> None:
    scene = Scene().runs().scheduler(slurm("n1", "IDLE", "REBOOT_ISSUED"), slurm("n2"))
    assert only(rebooted(scene).found(REBOOTED)).severity == "info"


def test_a_node_of_no_run_that_rebooted_is_a_warning() -> None:
    assert only(rebooted(Scene()).found(REBOOTED)).severity == "warning"


def test_a_clock_that_is_set_again_is_no_reboot() -> None:
    scene = Scene().after(300.0)
    ahead = scene.now + 3_600.0
    scene.say("n1", Hello(1, ahead, "n1", probe="nvml", boot_time=NOW - 90_000 + 3_600.0))
    assert scene.found(REBOOTED) == {}
    scene.after(60.0).say("n1", host(scene.now, boot_time=NOW - 90_000))
    assert scene.found(REBOOTED) == {}


# ---- clocks ----------------------------------------------------------------------------------------------------------


def skewed(*names: str, by: float, of: tuple[str, ...] = ("n1", "n2", "n3", "n4")) -> Scene:
    scene = Scene(*of).after(10.0)
    for name in of:
        scene.say(name, host(scene.now + (by if name in names else 0.0)))
    return scene


def test_a_clock_that_is_off_is_reported() -> None:
    finding = only(skewed("n1", by=-7.5).found(SKEW))
    assert finding.severity == "warning"
    assert finding.summary == "the clock of n1 is 7.5s behind the clock of this machine"
    assert (
        only(skewed("n1", by=30.0).found(SKEW)).summary == "the clock of n1 is 30s ahead of the clock of this machine"
    )


def test_a_node_that_prometheus_reads_now_has_no_known_clock() -> None:
    scene = skewed("n1", by=30.0)
    finding = only(scene.found(SKEW))
    scene.say("n1", Hello(1, scene.now, "n1", probe="prometheus"), HostSample(1, scene.now))
    assert scene.found(SKEW) == {}
    assert scene.why_unknown(SKEW, finding) == "only SSH shows its clock, not Prometheus"


def test_a_clock_within_two_seconds_is_well() -> None:
    assert skewed("n1", by=1.9).found(SKEW) == {}


def test_when_most_clocks_are_off_alike_it_is_ours() -> None:
    scene = skewed("n1", "n2", "n3", by=20.0)
    finding = only(scene.found(SKEW), "self")
    assert finding.summary == "the clock of this machine is 20s behind: 3 of 4 nodes agree on it"
    scene.silent(60.0)
    assert scene.why_unknown(SKEW, finding) is None
    for name in scene.nodes:
        scene.reduce(SourceRemoved(f"node:{name}"))
    assert scene.why_unknown(SKEW, finding) == "no node is reachable, so clocks cannot be compared"


def test_two_of_three_nodes_do_not_outvote_us_and_two_that_are_all_do() -> None:
    assert sorted(skewed("n1", "n2", by=20.0, of=("n1", "n2", "n3")).found(SKEW)) == ["node:n1", "node:n2"]
    assert list(skewed("n1", "n2", by=20.0, of=("n1", "n2")).found(SKEW)) == ["self"]
    assert list(skewed("n1", by=20.0, of=("n1",)).found(SKEW)) == ["node:n1"]
