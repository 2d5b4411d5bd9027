"""GPUs with a fault."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import NOW, Scene, alert, facts, host, samples, slurm
from trainmon.alerting.rules.gpus.faults import EccUncorrected, GpuLost, GpuMissing, RowRemap
from trainmon.model import Finding, GpuSample, GpuSamples, Hello, Xid

ECC, REMAP, LOST, MISSING = EccUncorrected(), RowRemap(), GpuLost(), GpuMissing()
RULES = (ECC, REMAP, LOST, MISSING)


def lose(scene: Scene) -> Scene:
    """GPU 3 of n1 falls off the bus."""
    rows = [GpuSample(3, "GPU is lost", lost=True) if row.index == 3 else row for row in samples(scene.now).g]
    return scene.say("n1", GpuSamples(1, scene.now, tuple(rows)))


TROUBLE = {
    "ecc-uncorrected": lambda scene: scene.say("n1", facts(scene.now, ecc_uncorrected=1)),
    "row-remap": lambda scene: scene.say("n1", facts(scene.now, remap_failed=True)),
    "gpu-lost": lose,
    "gpu-missing": lambda scene: scene.say("n1", facts(scene.now, gpus=7), samples(scene.now, gpus=7)),
}
"""What makes each rule find something on n1, which then falls silent: see test_silent_nodes."""


def only(found: dict[str, Finding], subject: str = "gpu:n1/3") -> Finding:
    assert list(found) == [subject]
    return found[subject]


def failing(error: str, *, lost: bool = False) -> Scene:
    """GPU 3 of n1 answers with an error."""
    scene = Scene().after(2.0)
    good = samples(scene.now)
    rows = [GpuSample(3, error, lost) if row.index == 3 else row for row in good.g]
    return scene.say("n1", GpuSamples(1, scene.now, tuple(rows)))


def test_well_gpus_say_nothing() -> None:
    for rule in RULES:
        assert Scene().runs().found(rule) == {}


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_errors_that_were_there_before_are_a_warning() -> None:
    finding = only(Scene().say("n1", facts(NOW, gpus=8, ecc_uncorrected=2)).after(0).found(ECC))
    assert finding.severity == "critical"  # the scene saw 0 before
    scene = Scene()
    scene.state = replace(scene.state, node_histories={})
    finding = only(scene.say("n1", facts(NOW, ecc_uncorrected=2)).found(ECC))
    assert (finding.severity, finding.since) == ("warning", None)
    assert finding.summary == ("GPU 3 of n1 has 2 uncorrected ECC errors since its driver was loaded; none is new")


def test_errors_that_come_while_it_is_watched_are_critical_for_a_day() -> None:
    scene = Scene().say("n1", facts(NOW, ecc_uncorrected=1)).after(300.0)
    scene.say("n1", facts(scene.now, ecc_uncorrected=4), samples(scene.now))
    finding = only(scene.found(ECC))
    assert (finding.severity, finding.since) == ("critical", NOW + 300)
    assert finding.summary == "GPU 3 of n1 has 4 uncorrected ECC errors, 4 of them new, the last 0s ago"
    assert finding.evidence == ("1 more, 5m ago", "3 more, 0s ago")
    scene.after(90_000.0).say("n1", facts(scene.now, ecc_uncorrected=4), samples(scene.now))
    old = only(scene.found(ECC))
    assert (old.severity, old.summary) == (
        "warning",
        "GPU 3 of n1 has 4 uncorrected ECC errors since its driver was loaded; none is new",
    )


def test_errors_that_are_no_longer_reported_are_not_resolved() -> None:
    scene = Scene().say("n1", facts(NOW, ecc_uncorrected=1))
    finding = only(scene.found(ECC))
    scene.say("n1", facts(NOW, ecc_uncorrected=None))
    assert scene.found(ECC) == {}
    assert scene.why_unknown(ECC, finding) == "GPU 3 does not report its ECC errors"
    scene.say("n1", facts(NOW, ecc_uncorrected=0))
    assert scene.why_unknown(ECC, finding) is None


def test_a_restart_of_this_program_does_not_make_new_errors_old() -> None:
    scene = Scene().after(300.0).say("n1", samples(NOW + 300), facts(NOW + 300, ecc_uncorrected=2))
    fired = alert(only(scene.found(ECC)), scene.now)
    anew = Scene("n2").say("n1", samples(NOW), facts(NOW, ecc_uncorrected=2)).after(3_900.0)
    anew.well("n2").say("n1", samples(anew.now), facts(anew.now, ecc_uncorrected=2))
    assert only(anew.found(ECC)).severity == "warning"
    anew.state = replace(anew.state, alerts={fired.id: replace(fired, summary="in other words")})
    finding = only(anew.found(ECC))
    assert finding.severity == "critical"
    assert finding.summary == "GPU 3 of n1 has 2 uncorrected ECC errors, some of them new, the first 1h ago"
    later = replace(fired, summary=finding.summary, since=anew.now - 90_000)
    anew.state = replace(anew.state, alerts={fired.id: later})
    assert only(anew.found(ECC)).severity == "warning", "a day later they are old"


def test_rows_that_could_not_be_remapped_are_critical_and_pending_ones_a_warning() -> None:
    scene = Scene().say("n1", facts(NOW, remap_pending=True))
    pending = only(scene.found(REMAP))
    assert pending.severity == "warning"
    assert "reset the GPU or reboot the node before the next job starts" in pending.advice
    scene.say("n1", facts(NOW, remap_pending=True, remap_failed=True))
    assert only(scene.found(REMAP)).severity == "critical"
    scene.say("n1", facts(NOW, remap_pending=None, remap_failed=None))
    assert scene.found(REMAP) == {}
    assert scene.why_unknown(REMAP, pending) == "GPU 3 does not report its remapped rows"
    scene.say("n1", facts(NOW))
    assert scene.why_unknown(REMAP, pending) is None


# ---- lost ------------------------------------------------------------------------------------------------------------


def test_a_lost_gpu_is_critical_at_once_with_the_xid_before_it() -> None:
    scene = Scene().runs().after(2.0).say("n1", Xid(1, NOW + 1.0, 79, index=3))
    good = samples(scene.now)
    rows = tuple(GpuSample(3, "GPU is lost", lost=True) if row.index == 3 else row for row in good.g)
    finding = only(scene.say("n1", GpuSamples(1, scene.now, rows)).found(LOST))
    assert (finding.severity, finding.fires_at_once, finding.run) == ("critical", True, "llm")
    assert finding.summary == "GPU 3 of n1 is lost, 7 of 8 GPUs respond"
    assert finding.evidence == ("Xid 79, 1s ago", "GPU is lost")


def test_an_error_is_given_half_a_minute() -> None:
    finding = only(failing("GPU requires reset").found(LOST))
    assert (finding.severity, finding.fires_at_once, LOST.for_) == ("critical", False, 30.0)


def test_a_driver_that_was_updated_under_a_job_is_a_warning() -> None:
    words = "NVML: Driver/library version mismatch: the driver was updated, and the node has not been restarted since"
    finding = only(failing(words).found(LOST))
    assert finding.severity == "warning"
    assert "running programs may continue" in finding.advice


def test_a_gpu_that_answers_again_is_over() -> None:
    scene = failing("GPU is lost", lost=True)
    finding = only(scene.found(LOST))
    scene.after(2.0).say("n1", samples(scene.now))
    assert scene.found(LOST) == {}
    assert scene.why_unknown(LOST, finding) is None


def test_a_lost_gpu_that_vanished_over_a_reboot_is_not_resolved() -> None:
    """The node lists seven, numbered anew: its GPU 3 is another now."""
    scene = failing("GPU is lost", lost=True)
    finding = only(scene.found(LOST))
    scene.after(300.0)
    scene.say("n1", Hello(1, scene.now, "n1", probe="nvml", boot_time=scene.now - 60))
    scene.say("n1", facts(scene.now, gpus=7, expected=7), samples(scene.now, gpus=7))
    assert [gpu.index for gpu in scene.state.nodes["n1"].gpus] == list(range(7))
    assert scene.found(LOST) == {}
    assert scene.why_unknown(LOST, finding) == "n1 lists 7 of its 8 GPUs"
    assert only(scene.found(MISSING), "node:n1").summary == "n1 lists 7 of its 8 GPUs: 1 missing"


def test_a_gpu_that_is_listed_no_more_is_not_resolved() -> None:
    scene = Scene().say("n1", facts(NOW, odd=7, ecc_uncorrected=1))
    finding = only(scene.found(ECC), "gpu:n1/7")
    scene.say("n1", facts(NOW, gpus=7, expected=7), samples(NOW, gpus=7))
    assert scene.why_unknown(ECC, finding) == "n1 no longer lists its GPU 7"


def test_gpus_that_are_no_longer_read_are_not_resolved() -> None:
    """The node answers, and its driver does not: its numbers are old."""
    scene = failing("GPU requires reset")
    finding = only(scene.found(LOST))
    scene.after(180.0).say("n1", host(scene.now))
    assert scene.state.sources["node:n1"].health == "ok"
    assert scene.found(LOST) == {}
    assert scene.why_unknown(LOST, finding) == "the GPUs of n1 have not been read for 3m"


# ---- missing ---------------------------------------------------------------------------------------------------------


def test_fewer_gpus_than_on_the_pci_bus_are_missing() -> None:
    scene = Scene("n1", "n2").say("n1", facts(NOW, gpus=7, expected=8), samples(NOW, gpus=7))
    finding = only(scene.found(MISSING), "node:n1")
    assert (finding.severity, finding.summary) == ("critical", "n1 lists 7 of its 8 GPUs: 1 missing")
    scene.say("n1", facts(NOW), samples(NOW))
    assert scene.found(MISSING) == {}
    assert scene.why_unknown(MISSING, finding) is None


def test_a_restart_of_this_program_does_not_bring_a_gpu_back() -> None:
    scene = Scene().say("n1", facts(NOW, gpus=7, expected=7), samples(NOW, gpus=7))
    finding = only(scene.found(MISSING), "node:n1")
    scene.state = type(scene.state)()
    scene.say("n1", facts(NOW, gpus=7, expected=7), samples(NOW, gpus=7))
    assert scene.found(MISSING) == {}
    assert scene.why_unknown(MISSING, finding) == "n1 lists 7 GPUs, and had 8"
    scene.say("n1", facts(NOW), samples(NOW))
    assert scene.why_unknown(MISSING, finding) is None


def test_a_job_that_is_shown_its_own_gpus_alone_misses_none() -> None:
    """In a cluster with Slurm a node shows each job its share: what was listed before is no measure."""
    scene = Scene().runs().say("n1", facts(NOW, gpus=4, expected=4), samples(NOW, gpus=4))
    assert scene.found(MISSING) == {}


def test_slurms_word_on_a_lost_gpu_is_taken() -> None:
    reason = "gres/gpu count reported lower than configured (7 < 8)"
    drained = slurm("n1", "IDLE", "DRAIN", reason=reason, reason_at=NOW - 60)
    other = slurm("far", "IDLE", "DRAIN", reason=reason)
    scene = Scene().runs().scheduler(drained, slurm("n2"), other)
    finding = only(scene.found(MISSING), "node:n1")
    assert finding.summary == "1 GPU of n1 missing, according to Slurm"
    assert finding.evidence == (f"Slurm: {reason}",)
    assert (finding.sources, finding.since, finding.run) == (("slurm:prod",), NOW - 60, "llm")
    scene.say("n1", GpuSamples(1, NOW, (GpuSample(3, "GPU is lost", lost=True),)))
    assert scene.found(MISSING) == {}, "its own row tells it"
    assert scene.why_unknown(MISSING, finding) == "Slurm still finds fewer GPUs in n1 than configured"
    scene.scheduler(slurm("n2"))
    assert scene.found(MISSING) == {}
    assert scene.why_unknown(MISSING, finding) == "Slurm no longer lists n1"
    scene.scheduler(slurm("n1", "IDLE"), slurm("n2"))
    assert scene.why_unknown(MISSING, finding) is None


def test_a_node_whose_driver_is_gone_has_no_gpu_that_can_be_read() -> None:
    scene = Scene("n1")
    scene.state = replace(scene.state, nodes={}, node_histories={})
    note = "8 NVIDIA GPUs, but no libnvidia-ml.so.1: is the driver installed?"
    scene.say("n1", Hello(1, NOW, "n1", probe="none", note=note))
    finding = only(scene.found(MISSING), "node:n1")
    assert (finding.severity, finding.summary) == ("critical", f"no GPU of n1 can be read: {note}")
    scene.say("n1", Hello(1, NOW, "n1", probe="none", note="NVML: Driver/library version mismatch"))
    assert only(scene.found(MISSING), "node:n1").severity == "warning"


def test_a_login_node_without_gpus_misses_none() -> None:
    scene = Scene("n1")
    scene.state = replace(scene.state, nodes={}, node_histories={})
    assert scene.say("n1", Hello(1, NOW, "n1", probe="none")).found(MISSING) == {}


# ---- a node with no job ----


def test_for_a_broken_gpu_of_a_node_on_which_no_job_is_nobody_gets_up() -> None:
    for fired, severity in (
        (slurm("n1", "IDLE"), "warning"),
        (slurm("n1", "IDLE", "DRAIN"), "warning"),
        (slurm("n1", "DOWN", "NOT_RESPONDING"), "warning"),
        (slurm("n1", "ALLOCATED"), "critical"),
    ):
        scene = Scene().scheduler(fired).say("n1", facts(NOW, remap_failed=True))
        assert only(scene.found(REMAP)).severity == severity
        scene.say("n1", GpuSamples(1, NOW, (GpuSample(index=3, lost=True),)))
        assert only(scene.found(LOST)).severity == severity
    under_a_run = Scene().runs().scheduler(slurm("n1", "IDLE"))
    under_a_run.say("n1", GpuSamples(1, NOW, (GpuSample(index=3, lost=True),)))
    assert only(under_a_run.found(LOST)).severity == "critical", "it was started beside the scheduler"
