"""Host keys: known_hosts line by line, and against a real sshd."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.sshd import Sshd, keygen, program, sign, sign_host
from trainmon.lib import HostKeyRefused
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.client import Dialer
from trainmon.transport.ssh.keys import KnownHosts, certificate, certificate_problem, fingerprint, read_public


class Key:
    """A host key to write into files: its line and its blob."""

    def __init__(self, path: Path, kind: str = "ed25519") -> None:
        keygen(path, kind=kind)
        self.path = path
        self.line = " ".join(Path(f"{path}.pub").read_text().split()[:2])
        self.kind = self.line.split()[0]
        blob = read_public(f"{path}.pub")
        assert blob is not None
        self.blob = blob


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("keys") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("keys") / "theirs")


def answer(text: str, key: Key, tmp_path: Path, host: str = "node1", port: int = 22, alias: str | None = None) -> str:
    """What a known_hosts of this text says: the answer, and the line."""
    file = tmp_path / "known_hosts"
    file.write_text(text)
    finding = KnownHosts([str(tmp_path / "missing"), str(file)], host, port, alias).verdict(key.blob, time.time())
    return finding.answer + (f" {finding.where.line}" if finding.where else "")


def test_names_patterns_and_negations(ours: Key, tmp_path: Path) -> None:
    assert answer(f"other,NODE1 {ours.line}", ours, tmp_path) == "ok 1"
    assert answer(f"node? {ours.line}", ours, tmp_path, "Node1") == "ok 1"
    assert answer(f"*,!node1 {ours.line}", ours, tmp_path) == "unknown"
    assert answer(f"node[1] {ours.line}", ours, tmp_path) == "unknown"


def test_ports_and_aliases(ours: Key, theirs: Key, tmp_path: Path) -> None:
    assert answer(f"[node1]:2222 {ours.line}", ours, tmp_path, port=2222) == "ok 1"
    assert answer(f"[node1]:2222 {ours.line}", ours, tmp_path) == "unknown"
    assert answer(f"node1 {ours.line}", ours, tmp_path, port=2222) == "ok 1"
    assert answer(f"node1 {theirs.line}", ours, tmp_path, port=2222) == "unknown"
    assert answer(f"cluster {ours.line}", ours, tmp_path, port=2222, alias="cluster") == "ok 1"


def test_a_changed_key_is_distinguished_from_an_unknown_one(ours: Key, theirs: Key, tmp_path: Path) -> None:
    assert answer(f"# mine\nnode1 {theirs.line}", ours, tmp_path) == "changed 2"
    assert answer(f"node1 {theirs.line}\nnode1 {ours.line}", ours, tmp_path) == "ok 2"
    assert answer(f"node2 {theirs.line}", ours, tmp_path) == "unknown"


def test_hashed_names_written_by_ssh_keygen(ours: Key, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"node1 {ours.line}\n[node1]:2222 {ours.line}\n")
    subprocess.run([program("ssh-keygen"), "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    text = file.read_text()
    assert "node1" not in text
    assert answer(text, ours, tmp_path) == "ok 1"
    assert answer(text, ours, tmp_path, port=2222) == "ok 2"
    assert answer(text, ours, tmp_path, "node2") == "unknown"


@pytest.mark.parametrize(
    "line",
    [
        "@cert-authority * {theirs}",
        "@revoked * {theirs}",
        "@new-marker node1 {theirs}",
        "node1 ssh-ed25519 !!!not-base64",
        "node1 ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA",
        "node1",
        "|1|broken|hash {theirs}",
        "\x00\xff\xfe binary",
    ],
)
def test_a_strange_line_costs_only_itself(line: str, ours: Key, theirs: Key, tmp_path: Path) -> None:
    text = f"{line.format(theirs=theirs.line)}\nnode1 {ours.line}\n"
    assert answer(text, ours, tmp_path) == "ok 2"


def test_a_revoked_key_is_refused_wherever_else_it_is_listed(ours: Key, tmp_path: Path) -> None:
    assert answer(f"node1 {ours.line}\n@revoked * {ours.line}", ours, tmp_path) == "revoked 2"
    # Only a line that begins with # is a comment: OpenSSH takes a name after a marker as it is.
    assert answer(f"node1 {ours.line}\n@revoked #old,node1 {ours.line}", ours, tmp_path) == "revoked 2"


def test_the_fingerprint_is_openssh_s(ours: Key) -> None:
    reason = subprocess.run([program("ssh-keygen"), "-l", "-f", f"{ours.path}.pub"], check=True, capture_output=True)
    assert reason.stdout.split()[1].decode() == fingerprint(ours.blob)


# ---- a real sshd -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd.start(tmp_path_factory.mktemp("sshd")) as running:
        yield running


def dial(sshd: Sshd, loop: EventLoop, tmp_path: Path, known: str) -> HostKeyRefused | None:
    """Dial n0 with a known_hosts of this text; the refusal, if it was one."""
    file = tmp_path / "known"
    file.write_text(known)
    config = sshd.ssh_config(extra=f"Host *\n  UserKnownHostsFile {file}", path=tmp_path / "config")
    dialer = Dialer(loop, config_file=config)
    try:
        dialer.dial("n0").run(["true"], timeout=60)
    except HostKeyRefused as refused:
        return refused
    finally:
        dialer.close()
    return None


def test_an_unknown_host_is_refused_with_its_fingerprint_and_the_command(
    sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    refused = dial(sshd, loop, tmp_path, "")
    blob = read_public(f"{sshd.host_keys['ed25519']}.pub")
    assert refused is not None
    assert blob is not None
    name = f"[{sshd.address(0)}]:{sshd.port}"
    assert refused.message == f"n0: its ED25519 host key is not known: {fingerprint(blob)}, as {name}"
    command = f"ssh -F {tmp_path}/config -o StrictHostKeyChecking=ask -p {sshd.port} n0 true"
    assert refused.hint == f"ask its administrator for the fingerprint; if it is the same, accept it with: {command}"


def test_a_changed_host_is_refused_loudly(sshd: Sshd, loop: EventLoop, tmp_path: Path, theirs: Key) -> None:
    name = f"[{sshd.address(0)}]:{sshd.port}"
    refused = dial(sshd, loop, tmp_path, f"{name} {theirs.line}\n")
    assert refused is not None
    assert "n0: its ED25519 host key HAS CHANGED: SHA256:" in refused.message
    assert f"is not the one in {tmp_path}/known:1" in refused.message
    assert f"ssh-keygen -R '{name}' -f {tmp_path}/known" in refused.hint


def test_a_revoked_host_key_is_refused(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    line = sshd.public(sshd.host_keys["ed25519"])
    refused = dial(sshd, loop, tmp_path, f"* {line}\n@revoked * {line}\n")
    assert refused is not None
    assert f"is REVOKED in {tmp_path}/known:2" in refused.message


def test_a_host_known_by_another_kind_of_key_is_dialled_with_that_kind(
    sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    listed = f"[{sshd.address(0)}]:{sshd.port} {sshd.public(sshd.host_keys['ecdsa'])}\n"
    assert dial(sshd, loop, tmp_path, listed) is None


def test_an_authority_without_a_certificate_does_not_help(
    sshd: Sshd, loop: EventLoop, tmp_path: Path, theirs: Key
) -> None:
    refused = dial(sshd, loop, tmp_path, f"@cert-authority * {theirs.line}\n")
    assert refused is not None
    assert f"{tmp_path}/known:1 trusts an authority, but the host has no certificate of it" in refused.message


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_host_certificate_is_honoured(kind: str, loop: EventLoop, tmp_path: Path) -> None:
    authority, key = Key(tmp_path / "authority", kind), keygen(tmp_path / "host", kind=kind)
    certificate = sign_host(authority.path, key, "127.0.10.*")
    options = {"HostKey": str(key), "HostCertificate": str(certificate)}
    with Sshd.start(tmp_path / "sshd", **options) as certified:
        assert dial(certified, loop, tmp_path, f"@cert-authority [127.0.*]:* {authority.line}\n") is None
        refused = dial(certified, loop, tmp_path, "")
        assert refused is not None
        revoking = f"@cert-authority * {authority.line}\n@revoked * {authority.line}\n"
        assert dial(certified, loop, tmp_path, revoking) is not None


def test_certificates_that_prove_nothing(ours: Key, theirs: Key, tmp_path: Path) -> None:
    def reason(path: Path, host: str = "node1", old: bytes = b"", new: bytes = b"") -> str | None:
        blob = read_public(str(path))
        assert blob is not None
        return certificate_problem(certificate(blob.replace(old, new)), host, time.time())

    def signed(*names: str, authority: Key = ours, valid: str = "always:forever") -> Path:
        return sign_host(authority.path, theirs.path, *names, valid=valid)

    assert reason(signed("node1", "node2")) is None
    assert reason(signed("node*")) is None
    assert reason(signed("node1"), "node3") == "it is for node1"
    assert reason(signed()) == "it is for no host"
    assert reason(signed("node1", valid="20200101:20210101")) == "it has expired"
    assert reason(signed("node1", valid="+1d:+2d")) == "it is not valid yet"
    assert reason(signed("node1"), "node2", b"node1", b"node2") == "its signature is wrong"
    assert reason(signed("node1"), "node1", ours.blob, theirs.blob) == "its signature is wrong"
    assert reason(sign(ours.path, theirs.path, "node1")) == "it is a user's certificate, not a host's"
    assert certificate_problem(certificate(b"\0\0\0\1x"), "node1", 0.0) is not None


def test_a_signature_that_cannot_be_checked_here_is_not_called_wrong(theirs: Key, tmp_path: Path) -> None:
    authority = Key(tmp_path / "authority", "rsa")
    command = [program("ssh-keygen"), "-q", "-s", str(authority.path), "-h", "-I", "test", "-t", "ssh-rsa"]
    subprocess.run([*command, f"{theirs.path}.pub"], check=True)
    blob = read_public(f"{theirs.path}-cert.pub")
    assert blob is not None
    problem = certificate_problem(certificate(blob), "node1", time.time())
    assert problem == "it is signed with ssh-rsa, which cannot be checked here"
