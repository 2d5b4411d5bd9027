"""Dialling a host: pauses, prompts, interpreters and lost connections."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.nodes.collector import pause_before
from collectors.nodes.stream import LONGEST_LINE, MOST_WITHOUT_READING
from collectors.probe import bundle
from tests.collectors.nodes.hosts import GREETING, HELLO, FakeShell, Host, until
from trainmon.lib import HostUnreachable, LoginNeeded, LoginRefused
from trainmon.transport.shell import Sink


def test_a_host_that_does_not_answer_is_dialled_again_after_a_growing_pause() -> None:
    error = HostUnreachable("n1", "no answer in 40s", hint="try: ssh n1")
    shell = FakeShell()
    host = Host(error, error, shell)
    host.watch.tick()
    source = host.source("retrying")
    assert (source.error, source.hint) == ("no answer in 40s", "try: ssh n1")
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


@pytest.mark.parametrize(
    ("begin", "is_stderr"),
    [
        (b"", False), (GREETING + HELLO, True),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((b"", True), (GREETING + HELLO, False))),
    ],
)  # fmt: skip
def test_a_host_that_prints_without_an_end_is_given_up_and_dialled_ever_less_often(
    begin: bytes, is_stderr: bool
) -> None:
    shells = [FakeShell() for _ in range(5)]
    host = Host(*shells)
    pauses = []
    for shell in shells:
        host.ticked(60.0)
        until(lambda shell=shell: shell.sink is not None and host.idle())  # type: ignore[misc]
        assert shell.sink is not None
        shell.sink.received(begin)
        receive = shell.sink.stderr_received if is_stderr else shell.sink.received
        for _ in range(MOST_WITHOUT_READING // LONGEST_LINE + 1):
            receive(b"y\n" * (LONGEST_LINE // 2))
        source = host.source("retrying")
        assert source.error == f"{3 if not begin else 2}.0 MiB of other output instead of readings: y"
        assert shell.closed
        pauses.append((source.retry_at or 0.0) - host.clock.now())
    assert pauses[-1] > 2 * pauses[0]


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


@pytest.mark.parametrize("kind", [LoginNeeded, LoginRefused])
def test_a_host_that_waits_for_a_master_connection_is_dialled_again_by_itself(kind: type[HostUnreachable]) -> None:
    error = kind("n1", "n1: the master connection is closed")
    error.waits_for_person = True
    host = Host(error, FakeShell())
    host.watch.tick()
    assert host.source("retrying").error == "n1: the master connection is closed"
    host.ticked(60.0)
    until(lambda: host.dials == 2)


def test_a_login_that_a_person_wants_is_tried_although_it_was_refused() -> None:
    error = LoginRefused("n1", "n1 refuses ana")
    error.waits_for_person = True
    host, retries = Host(error, FakeShell()), []
    host.watch.on_retry = lambda: retries.append(host.dials)
    host.watch.tick()
    host.source("retrying")
    host.watch.refresh()
    assert retries == []
    host.watch.login()
    assert retries == [1]


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
    assert host.source("connecting").error is None, "it is not down: the other way is tried next"
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


def test_what_a_login_script_prints_before_the_greeting_is_skipped() -> None:
    """It may end without a line feed, be longer than any line of a probe, and contain the start of the greeting."""
    for noise in (b"Welcome to n1. ", b"a\n\nb\n#pro", b"#" * (LONGEST_LINE + 5), b'{"k":"gpu","v":1}\nquota: 5% '):
        shell = FakeShell()
        host = Host(shell)
        host.watch.tick()
        until(lambda shell=shell, host=host: shell.sink is not None and host.idle())  # type: ignore[misc]
        assert shell.sink is not None
        for part in (noise, GREETING[:9], GREETING[9:] + HELLO):
            shell.sink.received(part)
        assert host.source("up").bad_lines == 0
        assert shell.written.startswith(bundle.payload(GREETING))


def test_an_account_without_a_shell_says_so_and_what_to_do() -> None:
    class Nologin(FakeShell):
        def stream(self, argv: Sequence[str], sink: Sink) -> FakeShell:
            super().stream(argv, sink)
            sink.received(b"This account is currently not available.\n")
            sink.ended(1, None)
            return self

    host = Host(Nologin())
    host.watch.tick()
    source = host.source("retrying")
    assert source.error == "its probe ended with status 1: This account is currently not available."
    assert source.hint == "try: ssh n1 python3 -V; without a terminal, a login script must not exit or wait"


def test_a_probe_that_does_not_start_is_reported_while_it_is_waited_for() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    host.source("connecting")
    host.ticked(14.0)
    assert host.events.empty()
    host.ticked(2.0)
    source = host.source("connecting")
    assert source.error == "connected, but its probe has not started for 15s"
    assert source.hint is not None
    assert source.hint.startswith("try: ssh n1 python3 -V")
    sink.received(HELLO)
    assert host.source("up").error is None


def test_a_python_that_needs_minutes_to_start_gets_them_and_the_row_says_how_long() -> None:
    """Each restart would begin these minutes again: the host would never be seen."""
    shell = FakeShell()
    host = Host(shell, FakeShell())
    host.watch.tick()
    until(lambda: shell.sink is not None and host.idle())
    host.source("connecting")
    for seconds in (20.0, 30.0, 30.0, 60.0, 60.0):
        host.ticked(seconds)
    said = [host.source("connecting").error for _ in range(4)]
    assert said == [f"connected, but its probe has not started for {waited}" for waited in ("15s", "60s", "2m", "3m")]
    assert not shell.closed
    assert shell.sink is not None
    shell.sink.received(GREETING + HELLO)
    assert host.source("up").error is None
    assert host.dials == 1


def test_a_python_that_never_starts_is_given_up_after_ten_minutes() -> None:
    shell = FakeShell()
    host = Host(shell, FakeShell())
    host.connected(shell)
    for _ in range(11):
        host.ticked(60.0)
    source = host.source("retrying")
    assert source.error == "connected, but its probe has not started for 10m"
    assert (source.hint or "").startswith("try: ssh n1 python3 -V")
    assert shell.closed


def test_a_refused_key_is_dialled_again_by_a_refresh_and_offers_no_login() -> None:
    """No answer of a person helps: another key does."""
    host = Host(LoginRefused("n1", "n1 refuses the login of ana: tried id_ed25519", hint="try: ssh n1"), FakeShell())
    host.watch.tick()
    source = host.source("held")
    assert (source.can_log_in, source.hint) == (False, "try: ssh n1; then press r on it to connect again")
    host.ticked(600.0)
    assert host.dials == 1
    host.watch.refresh()
    host.ticked(0.0)
    until(lambda: host.dials == 2)


def test_a_refused_answer_can_be_given_again_and_a_refresh_asks_nobody() -> None:
    refused = LoginRefused("n1", "n1: the server refused the password", hint="check the password, then log in again")
    refused.prompted = True
    host = Host(refused, LoginNeeded("n1", "n1 asked for a code"), FakeShell())
    host.watch.tick()
    assert host.source("held").can_log_in
    host.watch.refresh()
    host.ticked(0.0)
    assert host.dials == 1
    host.watch.login()
    host.ticked(0.0)
    assert host.source("held").can_log_in
    assert host.dials == 2


def test_a_host_that_nobody_named_offers_a_login_only_if_it_asks_for_one() -> None:
    for error, can_log_in in (
        (LoginNeeded("n1", "n1 needs a password, and nobody can be asked"), True),
        (LoginRefused("n1", "n1 refuses the login of ana"), False),
        (HostUnreachable("n1", "n1: port 22 refuses connections"), False),
    ):
        host = Host(error, FakeShell())
        host.watch.first_dial = host.dial
        host.watch.tick()
        assert host.source("off").can_log_in is can_log_in
