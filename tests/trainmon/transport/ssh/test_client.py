"""Real sshd: the ways there, the streams, and what is said when a connection goes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.end_to_end.product import QUICK
from tests.lab.slow_link import SlowLink
from tests.lab.sshd import Sshd, until
from trainmon.lib import CommandFailed, HostUnreachable, TrainmonError
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.client import Dialer, SshShell

NASTY = ("a'; echo foo", "$(id)", "two\nlines", "-rf", "", "`id`", '"', "*", "ü")


class Received:
    """A sink that keeps what it hears."""

    def __init__(self) -> None:
        self.out, self.err = b"", b""
        self.ends: list[tuple[int | None, TrainmonError | None]] = []
        self.done = threading.Event()

    def received(self, data: bytes) -> None:
        self.out += data

    def stderr_received(self, data: bytes) -> None:
        self.err += data

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        self.ends.append((status, error))
        self.done.set()


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd.start(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def dialer(sshd: Sshd, loop: EventLoop) -> Iterator[Dialer]:
    made = Dialer(loop, config_file=sshd.ssh_config(16))
    yield made
    made.close()
    until(lambda: not sshd.sessions(), "every session of the test has ended")


@pytest.fixture
def shell(dialer: Dialer) -> SshShell:
    return dialer.dial("n0")


def send_all(pids: list[int], number: signal.Signals) -> None:
    """Signal sshd's sessions; those of an earlier test may be ending."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


# ---- commands --------------------------------------------------------------------------------------------------------


def test_nasty_arguments_arrive_as_they_are(shell: SshShell) -> None:
    done = shell.run(["printf", "[%s]", *NASTY], timeout=60)
    assert done.stdout.decode() == "".join(f"[{argument}]" for argument in NASTY)


def test_status_output_and_complaints_come_apart(shell: SshShell) -> None:
    done = shell.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=60)
    assert done == (3, b"out\n", b"err\n")


def test_a_signal_is_a_negative_status(shell: SshShell) -> None:
    assert shell.run(["sh", "-c", "kill -TERM $$"], timeout=60).status == -signal.SIGTERM


def test_standard_input_arrives_whole(shell: SshShell) -> None:
    sent = os.urandom(5_000_000)
    assert shell.run(["cat"], stdin=sent, timeout=60).stdout == sent


def test_a_command_that_takes_too_long_is_an_error_in_words(shell: SshShell) -> None:
    with pytest.raises(CommandFailed, match=r"n0: sleep did not end in 0\.2s"):
        shell.run(["sleep", "30"], timeout=0.2)


def test_endless_output_is_cut_off(shell: SshShell) -> None:
    with pytest.raises(CommandFailed, match="n0: head printed more than 16 MiB"):
        shell.run(["head", "-c", "30000000", "/dev/zero"], timeout=60)


def test_a_closed_stream_ends_its_command(shell: SshShell) -> None:
    reader = Received()
    stream = shell.stream(["sh", "-c", "echo here; cat; echo bye"], reader)
    until(lambda: reader.out, "the command speaks")
    stream.write(b"hello\n")
    stream.close()
    until(reader.done.is_set, "it ends")
    assert (reader.out, reader.ends) == (b"here\nhello\nbye\n", [(0, None)])


def test_a_command_that_has_run_for_long_loses_no_byte_and_no_end(shell: SshShell) -> None:
    reader = Received()
    stream = shell.stream(["sh", "-c", "cat; echo bye; echo ouch >&2; exit 3"], reader)
    stream._gathers_from = 0.0
    lines = [b"%d\n" % number for number in range(200)]
    for line in lines:
        stream.write(line)
    stream.finish()
    until(reader.done.is_set, "it ends")
    assert (reader.out, reader.err) == (b"".join(lines) + b"bye\n", b"ouch\n")
    assert reader.ends == [(3, None)]


def test_how_long_bytes_have_waited_for_those_of_others_is_known(
    shell: SshShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmon.transport.ssh.transport.GATHER", 1.0)
    late, waited, early = [], [], []

    class Timed(Received):
        def received(self, data: bytes) -> None:
            _, arrived, left = stream.transit
            waited.append(arrived)
            late.append(time.time() - arrived - float(data))
            early.append(float(data) - (time.time() - left))

    reader = Timed()
    stream = shell.stream(["sh", "-c", "read x; for n in 1 2 3; do date +%s.%N; sleep 1.5; done"], reader)
    stream._gathers_from = 0.0
    stream.write(b"go\n")
    until(reader.done.is_set, "it ends")
    assert min(waited) > 0.9
    assert min(late) < 0.2, "the network and the clock"
    assert min(early) > -0.01, "none was printed before it can have left"
    assert early[0] < 0.5, "the server has confirmed the input"


def test_much_input_over_a_slow_link_leaves_room_for_other_connections(
    sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    with SlowLink.to(sshd, bandwidth=100_000.0, latency=0.02) as link:
        port = f"Host *\n  Port {link.port}\n"
        dialer = Dialer(loop, config_file=sshd.ssh_config(2, extra=port, path=tmp_path / "slow"))
        try:
            busy, other = dialer.dial("n0"), dialer.dial("n1")
            reader = Received()
            stream = busy.stream(["wc", "-c"], reader)
            stream.write(bytes(200_000))
            stream.finish()
            until(lambda: link.up.passed[sshd.address(0)] > 10_000, "it sends")
            assert other.run(["true"], timeout=30).status == 0
            until(reader.done.is_set, "all is sent")
        finally:
            dialer.close()
    assert reader.out == b"200000\n"
    assert link.up.longest_queue < 1.0, "the link keeps more than a second of bytes that it has taken"


def test_a_re_key_in_the_middle_loses_and_mixes_nothing(tmp_path: Path, loop: EventLoop) -> None:
    sent = bytes(range(256)) * 20_000
    with Sshd.start(tmp_path / "rekey", RekeyLimit="300K") as strict:
        dialer = Dialer(loop, config_file=strict.ssh_config())
        try:
            assert dialer.dial("n0").run(["cat"], stdin=sent, timeout=30).stdout == sent
        finally:
            dialer.close()


def test_an_unread_complaint_costs_no_cpu(shell: SshShell) -> None:
    reader = Received()
    shell.stream(["sh", "-c", "echo oops >&2; sleep 0.6"], reader)
    until(lambda: reader.err, "the complaint arrives")
    before = time.process_time()
    assert reader.done.wait(40)
    assert time.process_time() - before < 0.1
    assert reader.err == b"oops\n"


# ---- the ways there --------------------------------------------------------------------------------------------------


def test_include_and_match_are_honoured(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    included = tmp_path / "included"
    included.write_text(f"Match host found-by-match\n  HostName {sshd.address(3)}\n")
    config = sshd.ssh_config(1, extra=f"Include {included}", path=tmp_path / "config")
    dialer = Dialer(loop, config_file=config)
    try:
        done = dialer.dial("found-by-match").run(["sh", "-c", "echo $SSH_CONNECTION"], timeout=60)
    finally:
        dialer.close()
    assert done.stdout.split()[2].decode() == sshd.address(3)


def test_two_hops_are_shared_and_given_back(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    extra = f"Host n2 n3\n  ProxyJump {sshd.user}@n0:{sshd.port},n1"
    dialer = Dialer(loop, config_file=sshd.ssh_config(4, extra=extra, path=tmp_path / "config"))
    accepted = sshd.log.read_text().count("Accepted publickey")
    try:
        with ThreadPoolExecutor(2) as pool:
            shells = list(pool.map(dialer.dial, ["n2", "n3"]))
        assert [shell.run(["echo", "hi"], timeout=60).stdout for shell in shells] == [b"hi\n", b"hi\n"]
        sent = os.urandom(3_000_000)
        assert shells[0].run(["cat"], stdin=sent, timeout=60).stdout == sent
        assert sshd.log.read_text().count("Accepted publickey") - accepted == 4
        for shell in shells:
            shell.close()
        until(lambda: not sshd.sessions(), "the jump hosts are let go with the last host behind them")
    finally:
        dialer.close()


def test_a_dead_jump_host_is_named_by_the_hosts_behind_it(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    dialer = Dialer(loop, config_file=sshd.ssh_config(2, extra="Host n1\n  ProxyJump n0", path=tmp_path / "config"))
    reader = Received()
    try:
        dialer.dial("n1").stream(["sleep", "30"], reader)
        os.kill(min(sshd.sessions()), signal.SIGKILL)
        until(reader.done.is_set, "the stream ends")
    finally:
        dialer.close()
    assert str(reader.ends[0][1]) == "n1: n0: the server closed the connection (check its jump host)"


def test_jumping_in_a_circle_is_refused(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    extra = "Host n0\n  ProxyJump n1\nHost n1\n  ProxyJump n0"
    dialer = Dialer(loop, config_file=sshd.ssh_config(2, extra=extra, path=tmp_path / "config"))
    with pytest.raises(HostUnreachable, match="n0: its ProxyJump"):
        dialer.dial("n0")


def test_a_proxy_command_works_and_leaves_nothing(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    proxy = f"ssh -F {sshd.ssh_config(2, path=tmp_path / 'inner')} -W %h:%p n1"
    config = sshd.ssh_config(2, extra=f"Host n0\n  ProxyCommand {proxy}", path=tmp_path / "config")
    dialer = Dialer(loop, config_file=config)
    try:
        assert dialer.dial("n0").run(["echo", "hi"], timeout=60).stdout == b"hi\n"
    finally:
        dialer.close()
    until(lambda: not sshd.sessions(), "the proxy's own connection has ended")


def test_a_dying_proxy_ends_the_stream_and_costs_no_cpu(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    inner = sshd.ssh_config(2, path=tmp_path / "inner")
    script = f"sh -c 'echo $$ > {pid_file}; exec ssh -F {inner} -W %h:%p n1'"
    config = sshd.ssh_config(2, extra=f"Host n0\n  ProxyCommand {script}", path=tmp_path / "config")
    dialer = Dialer(loop, config_file=config)
    reader = Received()
    try:
        dialer.dial("n0").stream(["sleep", "30"], reader)
        other = dialer.dial("n1")
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        until(reader.done.is_set, "the stream ends")
        before = time.process_time()
        other.run(["sleep", "0.5"], timeout=60)
        assert time.process_time() - before < 0.1
    finally:
        dialer.close()
    assert isinstance(reader.ends[0][1], HostUnreachable)


def test_a_proxy_command_that_fails_is_quoted(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    extra = "Host n0\n  ProxyCommand echo no route >&2; exit 1"
    dialer = Dialer(loop, config_file=sshd.ssh_config(1, extra=extra, path=tmp_path / "config"))
    is_over = threading.Event()
    loop.call_soon(lambda: is_over.wait(0.3))  # a busy loop: its last words are read later than the end of its output
    with pytest.raises(HostUnreachable, match="n0: its ProxyCommand ended: no route"):
        dialer.dial("n0")


# ---- connections that go ---------------------------------------------------------------------------------------------


def test_a_killed_connection_ends_its_streams_with_a_sentence(sshd: Sshd, shell: SshShell) -> None:
    reader = [Received(), Received()]
    for sink in reader:
        shell.stream(["sleep", "30"], sink)
    send_all(sshd.sessions(), signal.SIGKILL)
    for sink in reader:
        until(sink.done.is_set, "the stream ends")
    assert [str(sink.ends[0][1]) for sink in reader] == ["n0: the server closed the connection"] * 2
    with pytest.raises(HostUnreachable, match="the server closed the connection"):
        shell.run(["true"], timeout=60)


def test_a_half_open_connection_is_noticed_and_closing_it_takes_no_time(
    sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    extra = "Host n0\n  ServerAliveInterval 1\n  ServerAliveCountMax 2"
    dialer = Dialer(loop, config_file=sshd.ssh_config(1, extra=extra, path=tmp_path / "config"))
    reader = Received()
    shell = dialer.dial("n0")
    shell.stream(["sleep", "30"], reader)
    stopped = sshd.sessions()
    send_all(stopped, signal.SIGSTOP)
    try:
        until(reader.done.is_set, "the silence is noticed", 30.0)
        assert "n0: no data" in str(reader.ends[0][1])
    finally:
        send_all(stopped, signal.SIGCONT)
        dialer.close()


def test_an_idle_connection_that_answers_is_kept(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    """Also where it may be asked only once: the answer to that is waited for, even on a busy machine."""
    extra = "Host n0\n  ServerAliveInterval 2\n  ServerAliveCountMax 1"
    dialer = Dialer(loop, config_file=sshd.ssh_config(1, extra=extra, path=tmp_path / "config"))
    try:
        assert dialer.dial("n0").run(["sleep", "6"], timeout=60).status == 0
    finally:
        dialer.close()


def test_closing_with_a_hung_host_takes_no_time(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    dialer = Dialer(loop, config_file=sshd.ssh_config(1, path=tmp_path / "config"))
    stream = dialer.dial("n0").stream(["sleep", "30"], Received())
    stopped = sshd.sessions()
    send_all(stopped, signal.SIGSTOP)
    before = time.monotonic()
    for _ in range(100):
        stream.write(bytes(100_000))
    stream.close()
    dialer.close()
    loop.stop()
    assert time.monotonic() - before < QUICK
    send_all(stopped, signal.SIGKILL)


# ---- no way there ----------------------------------------------------------------------------------------------------


def test_a_full_sshd_is_reported_in_words(loop: EventLoop, tmp_path: Path) -> None:
    with Sshd.start(tmp_path / "full", MaxStartups="1:100:1") as full:
        dialer = Dialer(loop, config_file=full.ssh_config())
        with socket.create_connection((full.address(0), full.port)) as first:
            first.recv(64)
            with pytest.raises(HostUnreachable) as raised:
                dialer.dial("n0")
    assert (
        raised.value.message
        == f"n0: {full.address(0)}:{full.port} closed the connection before the login: “Exceeded MaxStartups”"
    )
    assert "MaxStartups" in raised.value.hint


@pytest.mark.parametrize("garbage", [b"x" * 4_000, b"\xff\xfe \x1b[2J" * 500, b"a line\n" * 500])
def test_a_port_that_sends_garbage_without_an_end_is_given_up_after_64_kib(
    garbage: bytes, loop: EventLoop, tmp_path: Path
) -> None:
    sent = 0
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            nonlocal sent
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                while sent < 2**28:
                    sent += connection.send(garbage)

        threading.Thread(target=send, daemon=True).start()
        config = tmp_path / "config"
        config.write_text(f"Host n0\n  HostName 127.0.0.1\n  Port {server.getsockname()[1]}\n")
        with pytest.raises(HostUnreachable) as raised:
            Dialer(loop, config_file=config).dial("n0")
    assert re.search("does not speak SSH: it sends “.+” and more|closed the connection before", raised.value.message)
    assert raised.value.message.isprintable()
    assert sent < 2**25, "what the kernel's buffers take, and not all"


def test_a_connection_with_no_more_sessions_says_so(loop: EventLoop, tmp_path: Path) -> None:
    with Sshd.start(tmp_path / "single", MaxSessions="1") as single:
        dialer = Dialer(loop, config_file=single.ssh_config())
        try:
            shell = dialer.dial("n0")
            shell.stream(["sleep", "30"], Received())
            with pytest.raises(CommandFailed) as raised:
                shell.run(["true"], timeout=60)
        finally:
            dialer.close()
    assert raised.value.message == "n0 refused a session: Connect failed"
    assert "MaxSessions" in raised.value.hint


def test_no_more_than_at_once_log_in_together(loop: EventLoop, tmp_path: Path) -> None:
    with Sshd.start(tmp_path / "narrow", MaxStartups="4:100:4") as narrow:
        dialer = Dialer(loop, at_once=2, config_file=narrow.ssh_config(12))
        try:
            with ThreadPoolExecutor(12) as pool:
                assert len(list(pool.map(dialer.dial, [f"n{i}" for i in range(12)]))) == 12
        finally:
            dialer.close()


def test_a_closed_port_a_silent_one_and_no_such_host(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        extra = f"Host silent\n  HostName 127.0.0.1\n  Port {port}\nHost shut\n  HostName 127.0.0.1\n  Port 1\n"
        dialer = Dialer(loop, timeout=0.3, config_file=sshd.ssh_config(1, extra=extra, path=tmp_path / "config"))
        with pytest.raises(HostUnreachable, match=rf"silent: no answer from 127\.0\.0\.1:{port} in 0\.3s") as slow:
            dialer.dial("silent")
        assert slow.value.accepted, "it may only be slow to log in"
        with pytest.raises(HostUnreachable, match=r"shut: 127\.0\.0\.1:1 refuses connections") as down:
            dialer.dial("shut")
        assert not down.value.accepted
        with pytest.raises(HostUnreachable, match=r"nowhere\.invalid: its name cannot be resolved: "):
            dialer.dial("nowhere.invalid")
        with pytest.raises(HostUnreachable, match="its name cannot be resolved: a part of it is empty or longer"):
            dialer.dial("a" * 64)
        with pytest.raises(HostUnreachable, match="'-oProxyCommand=id' is not a host name"):
            dialer.dial("-oProxyCommand=id")


def test_paramiko_says_nothing_on_the_terminal(
    sshd: Sshd, loop: EventLoop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dialer = Dialer(loop, timeout=0.3, config_file=sshd.ssh_config(1, extra="Host n0\n  Port 1", path=tmp_path / "c"))
    with pytest.raises(HostUnreachable):
        dialer.dial("n0")
    assert capfd.readouterr() == ("", "")
