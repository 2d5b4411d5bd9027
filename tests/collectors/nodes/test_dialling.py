"""Dialling a host: pauses, prompts, interpreters and lost connections."""

from __future__ import annotations

from collections.abc import Sequence

from collectors.nodes.collector import pause_before
from collectors.probe import bundle
from tests.collectors.nodes.hosts import HELLO, FakeShell, Host, until
from trainmon.lib import HostUnreachable, LoginNeeded
from trainmon.transport.shell import Sink


def test_a_host_that_does_not_answer_is_dialled_again_after_a_growing_pause() -> None:
    error = HostUnreachable("n1", "no answer in 40 s", hint="try: ssh n1")
    shell = FakeShell()
    host = Host(error, error, shell)
    host.watch.tick()
    source = host.source("retrying")
    assert (source.error, source.hint) == ("no answer in 40 s", "try: ssh n1")
    assert source.retry_at is not None
    host.ticked(0.5)
    assert host.dials == 1
    host.ticked(2.0)
    host.source("retrying")
    assert host.dials == 2
    host.ticked(3.0)
    until(lambda: host.dials == 3)


def test_a_refresh_ends_the_pause() -> None:
    host = Host(HostUnreachable("n1", "no"), FakeShell())
    host.watch.tick()
    host.source("retrying")
    host.watch.refresh()
    host.ticked(0.0)
    until(lambda: host.dials == 2)


def test_a_host_that_needs_a_login_waits_for_a_person() -> None:
    shell = FakeShell()
    host = Host(LoginNeeded("n1", "it asks for a one-time code"), shell)
    host.watch.tick()
    assert host.source("held").hint == "press L to log in again"
    for _ in range(20):
        host.ticked(60.0)
    assert host.dials == 1
    host.watch.login()
    host.ticked(0.0)
    until(lambda: host.dials == 2)


def test_a_host_that_needed_a_prompt_is_not_redialled_when_it_is_lost() -> None:
    shell = FakeShell(prompted=True)
    host = Host(shell)
    sink = host.connected(shell)
    sink.received(HELLO)
    host.source("up")
    sink.ended(None, HostUnreachable("n1", "the connection was lost"))
    source = host.source("held")
    assert (source.error, source.hint) == ("the connection was lost", "press L to log in again")
    assert shell.closed
    host.ticked(600.0)
    assert host.dials == 1


def test_a_host_that_was_queried_and_then_failed_is_not_redialled() -> None:
    failed = HostUnreachable("n1", "its server did not answer in time")
    failed.prompted = True
    host = Host(failed, FakeShell())
    host.watch.tick()
    assert host.source("held").hint == "press L to log in again"
    host.ticked(600.0)
    assert host.dials == 1


def test_a_command_that_ends_before_its_start_has_returned_is_lost_at_once() -> None:
    class Refusing(FakeShell):
        def stream(self, argv: Sequence[str], sink: Sink) -> FakeShell:
            super().stream(argv, sink)
            sink.stderr_received(b"This account is not available\n")
            sink.ended(1, None)
            return self

    shell = Refusing()
    host = Host(shell)
    host.watch.tick()
    assert host.source("retrying").error == "its probe ended with status 1: This account is not available"
    assert shell.closed


def test_a_probe_that_ends_says_why() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    sink.stderr_received(b"bash: python3: command not found\n")
    sink.ended(127, None)
    assert host.source("retrying").error == "its probe ended with status 127: bash: python3: command not found"


def test_an_interpreter_that_ends_without_a_word_is_as_good_as_none() -> None:
    first, second = FakeShell(), FakeShell()
    host = Host(first, second)
    host.connected(first).ended(1, None)
    host.source("retrying")
    assert first.argv == bundle.command("python3")
    host.ticked(3.0)
    until(lambda: second.argv == bundle.command(bundle.NO_PYTHON))


def test_an_interpreter_that_was_killed_is_tried_again() -> None:
    first, second = FakeShell(), FakeShell()
    host = Host(first, second)
    host.connected(first).ended(137, None)
    host.source("retrying")
    host.ticked(3.0)
    until(lambda: second.argv == bundle.command("python3"))


def test_pauses_grow_to_a_minute_and_never_coincide() -> None:
    assert 1.0 <= pause_before(0) <= 1.5
    assert all(30 <= pause_before(20) <= 60.5 for _ in range(50))
    assert len({pause_before(3) for _ in range(20)}) == 20
