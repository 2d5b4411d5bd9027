"""What a refusal or a loss means on a node that lets people in for a job alone."""

from __future__ import annotations

import pytest

from collectors.nodes.collector import NEEDS_A_JOB, NEEDS_A_STEP, NONE_OF_OURS
from collectors.nodes.steps import NO_JOB, NoSrun
from tests.collectors.nodes.hosts import FakeShell, Host
from trainmon.lib import HostUnreachable, LoginRefused, TrainmonError
from trainmon.model import Source

PAM = (
    "n1 closed the connection during the login: Access denied by pam_slurm_adopt: you have no active jobs on this node"
)
CUT = HostUnreachable("n1", "n1: the server closed the connection")


class Node(Host):
    """A host with a queue, which says whether a job of ours is there."""

    def __init__(self, *answers: FakeShell | TrainmonError, ours: bool | None) -> None:
        super().__init__(*answers)
        self.ours = ours
        self.requests = 0
        self.watch.backoff.has_own_job = lambda: self.ours
        self.watch.backoff.poll_queue = self.ask

    def ask(self) -> None:
        self.requests += 1

    def up(self, shell: FakeShell) -> None:
        self.connected(shell).received(b'{"k":"hello","v":1,"t":1.0,"host":"n1"}\n')
        self.source("up")

    def lost(self, shell: FakeShell) -> Source:
        assert shell.sink is not None
        shell.sink.ended(None, CUT)
        return self.source("retrying")

    def says(self, ours: bool, after: float) -> None:
        """The queue speaks some seconds later."""
        self.clock.at += after
        self.ours = ours
        self.watch.queue_polled()


def test_a_node_without_a_job_of_ours_is_off_and_says_what_it_needs() -> None:
    host = Node(HostUnreachable("n1", PAM), ours=False)
    host.watch.tick()
    off = host.source("off")
    assert (off.error, off.hint) == (None, NONE_OF_OURS)
    host.ticked(3600)
    assert host.dials == 1


def test_a_lack_of_srun_is_an_error_at_once_and_no_matter_of_the_job() -> None:
    host = Node(NoSrun("there is no srun on login1"), ours=True)
    host.watch.tick()
    assert host.source("retrying").error == "there is no srun on login1"
    assert host.requests == 0


def test_a_node_that_is_read_by_a_step_says_that_it_needs_a_job() -> None:
    host = Host(HostUnreachable("n1", NO_JOB), FakeShell())
    ours = False
    host.watch.backoff.has_own_job, host.watch.backoff.requirement = lambda: ours, NEEDS_A_STEP
    host.watch.tick()
    assert host.source("off").hint == f"{NEEDS_A_STEP}, and you have none"
    ours = True
    host.watch.queue_polled()
    host.ticked(1.0)
    assert host.source("connecting").error is None


def test_it_is_dialled_again_when_a_job_of_ours_begins_there() -> None:
    shell = FakeShell()
    host = Node(HostUnreachable("n1", PAM), shell, ours=False)
    host.watch.tick()
    host.source("off")
    host.says(True, after=30)
    host.up(shell)
    assert host.watch.shell is shell


@pytest.mark.parametrize("ask", ["refresh", "login"])
def test_a_person_may_have_it_tried_before_the_queue_speaks(ask: str) -> None:
    shell = FakeShell()
    host = Node(HostUnreachable("n1", PAM), shell, ours=None)
    host.watch.tick()
    assert host.source("off").hint == NEEDS_A_JOB
    getattr(host.watch, ask)()
    host.up(shell)


def test_a_refusal_under_a_running_job_is_an_error_in_words() -> None:
    host = Node(HostUnreachable("n1", PAM), HostUnreachable("n1", PAM), ours=True)
    host.watch.tick()
    assert host.source("retrying").error is None
    assert host.requests == 1
    host.says(True, after=3)
    result = host.source("retrying")
    assert result.error == f"{NEEDS_A_JOB}, and does not see yours yet"
    assert result.hint == "your job may still be starting; try: ssh n1"


def test_a_loss_under_a_job_is_no_fault_until_its_queue_has_spoken() -> None:
    shell = FakeShell()
    host = Node(shell, ours=True)
    host.up(shell)
    result = host.lost(shell)
    assert (result.error, host.requests) == (None, 1)
    assert result.hint == f"{CUT.message}; checking the queue: your job there may have ended"
    host.says(True, after=1)
    assert host.events.empty()
    host.says(True, after=3)
    assert host.source("retrying").error == CUT.message


def test_a_queue_that_is_silent_does_not_hide_a_loss_for_long() -> None:
    shell = FakeShell()
    host = Node(shell, HostUnreachable("n1", "no route to host"), HostUnreachable("n1", "no route to host"), ours=True)
    host.up(shell)
    assert host.lost(shell).error is None
    host.ticked(5)
    assert host.source("retrying").error is None
    host.ticked(26)
    assert host.source("retrying").error == "no route to host"
    assert host.source("connecting").error == "no route to host"
    assert host.source("retrying").error == "no route to host"
    assert host.requests == 1


def test_losing_the_connection_as_the_job_ends_is_off() -> None:
    shell = FakeShell()
    host = Node(shell, HostUnreachable("n1", PAM), ours=True)
    host.up(shell)
    host.lost(shell)
    host.ticked(5)
    assert host.source("retrying").error is None
    host.says(False, after=5)
    off = host.source("off")
    assert (off.error, off.hint) == (None, NONE_OF_OURS)


def test_without_a_job_there_a_loss_is_a_fault_at_once() -> None:
    shell = FakeShell()
    host = Node(shell, ours=False)
    host.up(shell)
    assert host.lost(shell).error == CUT.message
    assert host.requests == 0


REFUSAL = LoginRefused("n1", "n1 refuses ana: tried id_ed25519", hint="try: ssh n1")


def test_a_plain_refusal_after_our_job_is_off_with_both_reasons() -> None:
    shell = FakeShell()
    host = Node(shell, REFUSAL, ours=True)
    host.up(shell)
    assert host.lost(shell).error is None
    host.says(False, after=5)
    host.ticked(60)
    off = host.source("off")
    assert off.error is None
    assert off.hint == "n1 refuses ana: tried id_ed25519; perhaps it requires a running job there"


@pytest.mark.parametrize("ours", [False, None])
def test_a_key_that_no_node_ever_took_is_a_fault_whatever_the_queue_says(ours: bool | None) -> None:
    host = Node(REFUSAL, ours=ours)
    host.watch.tick()
    assert host.source("held").error == "n1 refuses ana: tried id_ed25519"
    host.says(False, after=1)
    assert not host.watch.is_off
    assert not host.watch.backoff.may_log_in_again()
    host.says(True, after=30)
    assert [host.watch.backoff.may_log_in_again() for _ in range(2)] == [True, False]  # one more try, by itself


def test_a_plain_refusal_under_a_job_waits_for_a_person() -> None:
    host = Node(LoginRefused("n1", "n1 refuses ana", hint="try: ssh n1"), ours=True)
    host.watch.tick()
    assert host.source("held").error == "n1 refuses ana"


def test_words_on_standard_error_count_as_well_and_its_python_is_not_given_up() -> None:
    shell, again = FakeShell(), FakeShell()
    host = Node(shell, again, ours=False)
    sink = host.connected(shell)
    sink.stderr_received(b"Access denied by pam_slurm_adopt: you have no active jobs on this node\n")
    sink.ended(1, None)
    assert host.source("off").hint == NONE_OF_OURS
    host.says(True, after=1)
    host.connected(again)
    assert again.argv == shell.argv


def test_a_host_that_is_not_wanted_is_let_go_and_not_dialled() -> None:
    shell, again = FakeShell(), FakeShell()
    host = Node(shell, again, ours=True)
    host.up(shell)
    host.watch.release("its job ended")
    off = host.source("off")
    assert (off.error, off.hint, shell.closed) == (None, "its job ended", True)
    host.watch.refresh()
    host.watch.login()
    host.ticked(100)
    assert host.dials == 1
    with pytest.raises(HostUnreachable, match="n1 is not connected \\(its job ended\\)"):
        _ = host.watch.shell
    host.watch.resume()
    host.up(again)


def test_the_words_of_a_row_are_those_of_who_wants_its_connection() -> None:
    host = Node(HostUnreachable("n1", "n1: no route to host", hint="try: ping n1"), ours=None)
    host.watch.tick()
    host.source("retrying")
    with pytest.raises(HostUnreachable, match="n1: no route to host \\(try: ping n1\\)"):
        _ = host.watch.shell
