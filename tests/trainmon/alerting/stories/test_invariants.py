"""Whatever happens, in whatever order: no alert that fired is forgotten without a notice or a named reason, none is
over while it cannot be seen, "over" is told only where it was told that it began, no two notices have one key."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainmon.alerting.stories.story import Story, mail, phone, rule
from trainmon.alerting.pipeline.routing import quiet_because
from trainmon.model import Alert, AlertsRestored, Leadership, LeadershipChanged

NODES = ("node:gpu-001", "node:gpu-002")
RULES = ("gpu-hot", "node-unreachable", "run-dead", "restarted")
LATER = 3_000.0
"""Long enough for every pause, hold and keep of these stories."""

Deed = Callable[[Story], object]


def subject(name: str, node: str) -> str:
    host = node.removeprefix("node:")
    return {"gpu-hot": f"gpu:{host}/1", "node-unreachable": node}.get(name, f"run:of-{host}")


def wrong(name: str, node: str, severity: str) -> Deed:
    def do(story: Story) -> None:
        is_event = name == "restarted"
        run = f"of-{node.removeprefix('node:')}"
        sources = () if name == "node-unreachable" else (node,)
        since = story.elapsed if is_event else None
        story.wrong(name, subject(name, node), severity, sources=sources, event=is_event, run=run, since=since)  # type: ignore[arg-type]

    return do


def cut_off(node: str) -> Deed:
    """A node that falls silent: its rules find nothing of it any more."""

    def do(story: Story) -> None:
        story.fall_silent(node).well(*(subject(name, node) for name in RULES if name != "node-unreachable"))

    return do


def crash(name: str, node: str) -> Deed:
    """Something is found, and the program is killed before any of it is written down."""

    def do(story: Story) -> None:
        story.kept.is_stuck = True
        wrong(name, node, "critical")(story)
        story.at(story.elapsed + 2).restart()

    return do


def change_hands(seconds: float) -> Deed:
    """Another program tells people for a while, and goes."""

    def do(story: Story) -> None:
        story.hear(LeadershipChanged(Leadership(holder="other"))).at(story.elapsed + seconds)
        story.hear(LeadershipChanged(Leadership(holder="us")), AlertsRestored(story.kept.stored()))

    return do


names, nodes = st.sampled_from(RULES), st.sampled_from(NODES)
deeds: st.SearchStrategy[Deed] = st.one_of(
    st.builds(wrong, names, nodes, st.sampled_from(("critical", "warning", "info"))),
    st.builds(wrong, names, nodes, st.sampled_from(("critical", "warning"))),
    st.just(lambda story: story.well()),
    st.builds(lambda name, node: lambda story: story.well(subject(name, node)), names, nodes),
    st.builds(cut_off, nodes),
    st.builds(lambda node: lambda story: story.speak(node), nodes),
    st.builds(lambda seconds: lambda story: story.mute(seconds, rule="gpu-hot"), st.sampled_from((60.0, 400.0))),
    st.builds(lambda seconds: lambda story: story.restart(seconds), st.sampled_from((0.0, 30.0, 5_000.0))),
    st.builds(lambda seconds: lambda story: story.sleep(seconds), st.sampled_from((100.0, 9_000.0))),
    st.builds(lambda seconds: lambda story: story.set_clock(seconds), st.sampled_from((-3_600.0, 3_600.0))),
    st.just(lambda story: [story.order("ack", name) for name in story.state.alerts]),
    st.builds(crash, names, nodes),
    st.builds(change_hands, st.sampled_from((1.0, 90.0))),
)
steps = st.lists(st.tuples(deeds, st.sampled_from((1.0, 70.0, 200.0))), min_size=6, max_size=20)


def told_of(story: Story, alert: Alert) -> bool:
    return any(alert.id in {one.id for one in notice.alerts} for notice in story.kept.notices)


@settings(max_examples=30)
@given(steps)
def test_nothing_is_forgotten(deeds_and_pauses: list[tuple[Deed, float]]) -> None:
    held = rule("gpu-hot", for_=60)
    with Story(held, *(rule(name) for name in RULES[1:]), phone(), mail("info"), sources=NODES) as story:
        fired: dict[str, Alert] = {}
        waiting: dict[str, float] = {}
        story.at(5)
        for deed, pause in deeds_and_pauses:
            deed(story)
            step(story, story.elapsed + pause, fired, waiting)
        step(story, story.elapsed + LATER, fired, waiting)
        for alert in fired.values():
            assert told_of(story, alert) or story.why_not_told(alert), f"{alert.rule} {alert.subject} was forgotten"
        for notice in story.kept.notices:
            check_end(story, notice.key)
            story.expected.add(notice.key)


WITHIN = 95.0
"""A minute for its group, and half a one in a storm."""


def check_told_soon(story: Story, waiting: dict[str, float]) -> None:
    """`waiting`: since when a critical alert could have been told."""
    notified = {alert.id for notice in story.kept.notices for alert in notice.alerts}
    for alert in story.state.alerts.values():
        is_quiet = quiet_because(alert) is not None or alert.acknowledged_by is not None
        if is_quiet or alert.phase != "firing" or alert.severity != "critical" or story.state.leadership.holder != "us":
            waiting.pop(alert.id, None)
            continue
        since = waiting.setdefault(alert.id, story.elapsed)
        assert alert.id in notified or story.elapsed - since <= WITHIN, f"{alert.rule} {alert.subject} is not told"


def step(story: Story, until: float, fired: dict[str, Alert], waiting: dict[str, float]) -> None:
    """Look on; nothing may be over of which the source is silent."""
    while story.elapsed < until - 1e-6:
        before = story.state.alerts
        story.at(min(until, story.elapsed + 5.0), tick=5.0)
        check_told_soon(story, waiting)
        for alert in story.state.alerts.values():
            if alert.fired_at is not None:
                fired[alert.id] = alert
            was = before.get(alert.id)
            if was is not None and was.is_open and alert.ended == "over" and not alert.event:
                seen = all(story.state.sources[name].health == "ok" for name in alert.sources)
                assert seen, f"{alert.rule} is over, and nobody saw it"


def check_end(story: Story, key: str) -> None:
    """That something is over is told only on channels that were told that it began."""
    earlier: dict[str, set[str]] = {}
    for notice in story.kept.notices:
        if notice.key == key and notice.kind == "resolve":
            for alert in notice.alerts:
                received = earlier.get(alert.id, set()) | earlier.get(f"{alert.rule} flaps", set())
                assert set(notice.channels) <= received, (
                    f"{alert.rule} is over on {notice.channels}, told on {received}"
                )
        for alert in notice.alerts:
            name = f"{alert.rule} flaps" if notice.kind == "flapping" else alert.id
            earlier.setdefault(name, set()).update(notice.channels)
