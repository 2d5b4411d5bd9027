"""The trust settings of the ssh config: `ssh` and the program accept the same hosts, and refuse the same hosts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.sshd import Sshd, keygen, program, sign_host
from trainmon.lib import HostKeyRefused, HostUnreachable
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.client import Dialer, result_of_address
from trainmon.transport.ssh.config import HostSettings, Trust
from trainmon.transport.ssh.keys import read_public
from trainmon.transport.ssh.openssh import OpensshDialer

HOST, JUMP = "127.0.10.1", "127.0.10.2"
ALGORITHMS = {
    "Ciphers": "aes128-ctr,aes128-gcm@openssh.com",
    "MACs": "hmac-sha2-256",
    "KexAlgorithms": "curve25519-sha256,curve25519-sha256@libssh.org",
}
"""Of the plain server."""


class Hosts:
    """Two servers: `plain` has an Ed25519, an ECDSA and an RSA key, `certified` has certificates for three more keys.
    Rows name their files and keys in braces."""

    def __init__(self, folder: Path, plain: Sshd, certified: Sshd) -> None:
        self.servers = {"plain": plain, "certified": certified}
        self.folder = folder
        self.words = {"dir": str(folder), "port": str(plain.port), "certified": str(certified.port), "user": plain.user}
        keys = {**plain.host_keys, **{name: folder / name for name in ("other", "ca", "ecdsa_ca")}}
        for name, path in {**keys, "rsa": folder / "host_rsa"}.items():
            self.words[name] = plain.public(path)
        self.words["of_certified"] = certified.public(folder / "host_certified")

    def fill(self, text: str) -> str:
        for name, value in self.words.items():
            text = text.replace(f"{{{name}}}", value)
        return text


def revocations(folder: Path) -> None:
    """Key revocation lists and text files of revoked keys."""

    def krl(name: str, *options: str | Path) -> None:
        command = [program("ssh-keygen"), "-q", "-k", "-f", str(folder / name), *map(str, options)]
        subprocess.run(command, check=True, capture_output=True)

    text = {name: (folder / f"{name}.pub").read_text() for name in ("host_plain", "other", "ca", "host_certified")}
    krl("krl", folder / "host_plain.pub")
    krl("krl_other", folder / "other.pub")
    krl("krl_ca", folder / "ca.pub")
    (folder / "serial").write_text("id: test\n")
    krl("krl_id", "-s", folder / "ca.pub", folder / "serial")
    (folder / "sha256").write_text(f"sha256: {text['host_plain']}")
    krl("krl_sha256", folder / "sha256")
    (folder / "text").write_text(f"# revoked\n\n{text['other']}{text['host_plain']}")
    (folder / "text_other").write_text(text["other"])
    (folder / "text_ca").write_text(text["ca"])
    (folder / "text_certificate").write_text((folder / "host_certified-cert.pub").read_text())
    (folder / "text_broken").write_text(f"{text['other']}no key\n")
    (folder / "text_options").write_text(f"127.* {text['other']}")
    (folder / "text_return").write_text(text["other"].rstrip() + "\r\n", newline="")
    (folder / "text_spaces").write_text(f"\t {text['other'].rstrip()} a comment\n \n\t# none\n")
    (folder / "text_feed").write_text(f"# none\f{text['host_plain']}")
    (folder / "text_vertical").write_text(text["host_plain"].replace(" ", "\v", 1))
    (folder / "text_cut").write_text(text["other"][:60] + "\n")
    (folder / "text_blank").write_text(text["other"].rstrip() + "\r\n\r\n", newline="")
    (folder / "text_nul").write_text(f"\0{text['host_plain']}{text['other']}")
    (folder / "empty").touch()
    (folder / HOST).touch()
    (folder / "krl_broken").write_bytes((folder / "krl").read_bytes()[:30])


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("trust")
    kinds = {"host_rsa": "rsa", "host_certified": "ed25519", "host_wildcard": "rsa", "host_nameless": "ecdsa"}
    for name, kind in {**kinds, "other": "ed25519", "ca": "ed25519", "ecdsa_ca": "ecdsa"}.items():
        keygen(folder / name, kind=kind)
    certificates = [
        sign_host(folder / "ca", folder / "host_certified", HOST, "alias", "Mixed"),
        sign_host(folder / "ecdsa_ca", folder / "host_wildcard", "127.0.10.*"),
        sign_host(folder / "ca", folder / "host_nameless"),
    ]
    more = "".join(f"HostCertificate {path}\nHostKey {str(path).removesuffix('-cert.pub')}\n" for path in certificates)
    (folder / "more").write_text(more)
    with (
        Sshd.start(folder / "plain", HostKey=str(folder / "host_rsa"), **ALGORITHMS) as plain,
        Sshd.start(folder / "certified", Include=str(folder / "more")) as certified,
    ):
        (folder / "host_plain.pub").write_text(plain.public(plain.host_keys["ed25519"]) + "\n")
        revocations(folder)
        hosts = Hosts(folder, plain, certified)
        (folder / "listed").write_text(hosts.fill(KNOWN) + "\n")
        (folder / "hashed").write_text(hosts.fill(KNOWN) + "\n")
        subprocess.run([program("ssh-keygen"), "-q", "-H", "-f", folder / "hashed"], check=True, capture_output=True)
        hosts.words["hashed"] = (folder / "hashed").read_text()
        hosts.words["hashed_name"] = hosts.words["hashed"].split()[0]
        yield hosts


NAME = "[" + HOST + "]:{port}"
CERTIFIED = "[" + HOST + "]:{certified}"
KNOWN = NAME + " {ed25519}"
AUTHORITY = "@cert-authority " + CERTIFIED + " {ca}"
SERVER_OF = {True: "certified", False: "plain"}

WILDCARD = "HostKeyAlgorithms rsa-sha2-512-cert-v01@openssh.com"
NAMELESS = "HostKeyAlgorithms ecdsa-sha2-nistp256-cert-v01@openssh.com"

AS_SSH = {
    "a known key": ("", KNOWN),
    "an unknown key": ("", ""),
    "a changed key": ("", NAME + " {other}"),
    "two known keys": ("", NAME + " {other}\n" + KNOWN),
    "only another type is known": ("", NAME + " {ecdsa}"),
    "the RSA key is known": ("", NAME + " {rsa}"),
    "a wildcard": ("", "[127.0.*]:* {ed25519}"),
    "a negated pattern": ("", "[127.0.*]:*,!" + NAME + " {ed25519}"),
    "any host": ("", "* {ed25519}"),
    "tabs in a line": ("", NAME + "\t{ed25519}\tcomment"),
    "spaces before a line": ("", "  " + KNOWN + "  a comment"),
    "a carriage return": ("", KNOWN + "\r"),
    "a carriage return after a comment": ("", KNOWN + " comment\r"),
    "lines that are not host keys": ("", "# x\n\nnonsense\n@other * {other}\n" + KNOWN),
    "a form feed in a line": ("", "nonsense \f" + KNOWN),
    "a line separator in a line": ("", "nonsense\u2028" + KNOWN),
    "a vertical tab in a revoked line": ("", KNOWN + "\n@revoked\v* {ed25519}"),
    "a NUL in the names": ("", "x\0," + KNOWN),
    "a hashed name": ("", "{hashed}"),
    "a hashed name in a list": ("", "x,{hashed}"),
    "a hashed name after a negated one": ("", "!x,{hashed}"),
    "a hashed name and another": ("", "{hashed_name}," + KNOWN),
    "capitals": ("Host n0\n  HostName LOCALHOST\nHost *", "[localhost]:{port} {ed25519}"),
    "capitals in a pattern": ("Host n0\n  HostName localhost\nHost *", "[LOCAL*]:{port} {ed25519}"),
    "a set in a pattern": ("", "[127.0.10.[12]]:{port} {ed25519}"),
    "a negated name first": ("", "!" + NAME + ",* {ed25519}"),
    "only a negated name": ("", "!x {ed25519}"),
    # the port
    "known under the bare name": ("", HOST + " {ed25519}"),
    "another key under the bare name": ("", HOST + " {other}"),
    "a key of another type under the bare name": ("", HOST + " {ecdsa}"),
    "changed, and known under the bare name": ("", NAME + " {other}\n" + HOST + " {ed25519}"),
    "another type, and known under the bare name": ("", NAME + " {ecdsa}\n" + HOST + " {ed25519}"),
    "the port of another server": ("", "[" + HOST + "]:1 {ed25519}"),
    # markers
    "a revoked key": ("", KNOWN + "\n@revoked * {ed25519}"),
    "revoked under the bare name only": ("", KNOWN + "\n@revoked " + HOST + " {ed25519}"),
    "another key is revoked": ("", KNOWN + "\n@revoked * {other}"),
    "an authority without a certificate": ("", "@cert-authority * {ca}"),
    "an authority and a known key": ("", KNOWN + "\n@cert-authority * {ca}"),
    "the key as an authority": ("", "@cert-authority " + NAME + " {ed25519}"),
    # certificates
    "a certificate": ("", AUTHORITY),
    "a certificate under the bare name": ("", "@cert-authority " + HOST + " {ca}"),
    "a certificate, and another key is listed": ("", AUTHORITY + "\n" + CERTIFIED + " {other}"),
    "a certificate of another authority": ("", "@cert-authority * {ecdsa_ca}"),
    "another authority, and the key is known": ("", "@cert-authority * {ecdsa_ca}\n* {of_certified}"),
    "no authority, and the key is known": ("", CERTIFIED + " {of_certified}"),
    "no authority, and the key has changed": ("", CERTIFIED + " {other}"),
    "a revoked authority": ("", AUTHORITY + "\n@revoked * {ca}"),
    "a revoked authority, and the key is known": ("", CERTIFIED + " {of_certified}\n@revoked * {ca}"),
    "the key of the certificate is revoked": ("", AUTHORITY + "\n@revoked * {of_certified}"),
    "a certificate for the alias": ("HostKeyAlias alias", "@cert-authority alias {ca}"),
    "a certificate for another alias": ("HostKeyAlias another", "@cert-authority another {ca}"),
    "a name with a wildcard in a certificate": (WILDCARD, "@cert-authority * {ecdsa_ca}"),
    "a certificate of an ECDSA authority": (
        WILDCARD + "\nHostKeyAlias 127.0.10.*\nCASignatureAlgorithms ecdsa-sha2-nistp256",
        "@cert-authority * {ecdsa_ca}",
    ),
    "a certificate of an ECDSA authority that is not allowed": (
        WILDCARD + "\nHostKeyAlias 127.0.10.*\nCASignatureAlgorithms ssh-ed25519", "@cert-authority * {ecdsa_ca}",
    ),
    "changed, and a certificate's key under the bare name": ("", CERTIFIED + " {other}\n" + HOST + " {of_certified}"),
    # which signatures and keys
    "a signature that is allowed": ("CASignatureAlgorithms ssh-ed25519", AUTHORITY),
    "a signature that is not allowed": ("CASignatureAlgorithms ecdsa-sha2-nistp256", AUTHORITY),
    "a signature that is removed": ("CASignatureAlgorithms -ssh-ed25519", AUTHORITY),
    "only plain keys, and only an authority": ("HostKeyAlgorithms ssh-ed25519", AUTHORITY),
    "only certificates": ("HostKeyAlgorithms *-cert-v01@openssh.com", AUTHORITY),
    "only certificates, and there is none": ("HostKeyAlgorithms *-cert-v01@openssh.com", KNOWN),
    "another host key algorithm": ("HostKeyAlgorithms ecdsa-sha2-nistp256", KNOWN),
    "the same host key algorithm": ("HostKeyAlgorithms ssh-ed25519", KNOWN),
    "the first algorithm is not the known one": ("HostKeyAlgorithms ssh-ed25519,rsa-sha2-512", NAME + " {rsa}"),
    "the known algorithm is removed": ("HostKeyAlgorithms -ssh-ed25519*", KNOWN),
    "an unknown algorithm is removed": ("HostKeyAlgorithms -ssh-ed25519*", NAME + " {rsa}"),
    "an algorithm is added": ("HostKeyAlgorithms +ssh-rsa", NAME + " {rsa}"),
    "an algorithm is added in a block": ('Match all\n  HostKeyAlgorithms +ssh-rsa\nMatch all', NAME + " {ecdsa}"),
    "an algorithm is added, and another key is known": ("HostKeyAlgorithms +ssh-rsa", NAME + " {other}"),
    "the known algorithm first": ("HostKeyAlgorithms ^rsa-sha2-512", NAME + " {rsa}"),
    "an algorithm first that is neither known nor the default": ("HostKeyAlgorithms ^rsa-sha2-512", NAME + " {ecdsa}"),
    "another algorithm first": ("HostKeyAlgorithms ^rsa-sha2-512", KNOWN),
    "one RSA version": ("HostKeyAlgorithms rsa-sha2-256", NAME + " {rsa}"),
    "RSA keys must be longer": ("RequiredRSASize 4096", NAME + " {rsa}"),
    "RSA keys are long enough": ("RequiredRSASize 3072", NAME + " {rsa}"),
    "RSA keys must be longer, and the key is not RSA": ("RequiredRSASize 4096", KNOWN),
    # the transport
    "a cipher that the server refuses": ("Ciphers aes256-ctr", KNOWN),
    "a cipher that the server has": ("Ciphers aes128-gcm@openssh.com", KNOWN),
    "a MAC that the server refuses": ("MACs hmac-sha2-512\nCiphers aes128-ctr", KNOWN),
    "a MAC that the server has": ("MACs hmac-sha2-256\nCiphers aes128-ctr", KNOWN),
    "a key exchange that the server refuses": ("KexAlgorithms ecdh-sha2-nistp521", KNOWN),
    "a key exchange that the server has": ("KexAlgorithms curve25519-sha256", KNOWN),
    # the login
    "the user's key is of another algorithm": ("PubkeyAcceptedAlgorithms rsa-sha2-512", KNOWN),
    "the user's key is of this algorithm": ("PubkeyAcceptedAlgorithms ssh-ed25519", KNOWN),
    "no keys of the user": ("PubkeyAuthentication no", KNOWN),
    # RevokedHostKeys
    "revoked in a KRL": ("RevokedHostKeys {dir}/krl", KNOWN),
    "not in the KRL": ("RevokedHostKeys {dir}/krl_other", KNOWN),
    "revoked in a KRL by its hash": ("RevokedHostKeys {dir}/krl_sha256", KNOWN),
    "the authority is in a KRL": ("RevokedHostKeys {dir}/krl_ca", AUTHORITY),
    "the authority is in a KRL, and the key is known": ("RevokedHostKeys {dir}/krl_ca", "* {of_certified}"),
    "the certificate is in a KRL": ("RevokedHostKeys {dir}/krl_id", AUTHORITY),
    "a KRL of another authority": ("RevokedHostKeys {dir}/krl_other", AUTHORITY),
    "revoked in a text file": ("RevokedHostKeys {dir}/text", KNOWN),
    "not in the text file": ("RevokedHostKeys {dir}/text_other", KNOWN),
    "the authority is in a text file": ("RevokedHostKeys {dir}/text_ca", AUTHORITY),
    "the certificate is in a text file": ("RevokedHostKeys {dir}/text_certificate", AUTHORITY),
    "an empty text file": ("RevokedHostKeys {dir}/empty", KNOWN),
    "a broken text file": ("RevokedHostKeys {dir}/text_broken", KNOWN),
    "a text file with a pattern": ("RevokedHostKeys {dir}/text_options", KNOWN),
    "a text file with carriage returns": ("RevokedHostKeys {dir}/text_return", KNOWN),
    "a text file with carriage returns and a blank line": ("RevokedHostKeys {dir}/text_blank", KNOWN),
    "a text file with a NUL": ("RevokedHostKeys {dir}/text_nul", KNOWN),
    "a text file with spaces": ("RevokedHostKeys {dir}/text_spaces", KNOWN),
    "a text file with a form feed": ("RevokedHostKeys {dir}/text_feed", KNOWN),
    "a text file with a vertical tab": ("RevokedHostKeys {dir}/text_vertical", KNOWN),
    "a text file with a cut key": ("RevokedHostKeys {dir}/text_cut", KNOWN),
    "a broken KRL": ("RevokedHostKeys {dir}/krl_broken", KNOWN),
    "the file is missing": ("RevokedHostKeys {dir}/missing", KNOWN),
    "the file is a directory": ("RevokedHostKeys {dir}", KNOWN),
    "no file": ("RevokedHostKeys none", KNOWN),
    "revoked in a block": ('Match exec "true"\n  RevokedHostKeys {dir}/krl\nMatch all', KNOWN),
    "revoked in a block of others": ('Match exec "false"\n  RevokedHostKeys {dir}/krl\nMatch all', KNOWN),
    "revoked for a pattern of hosts": ("Host n*\n  RevokedHostKeys {dir}/krl\nHost *", KNOWN),
    "revoked for other hosts": ("Host x*\n  RevokedHostKeys {dir}/krl\nHost *", KNOWN),
    "revoked in an included file": ("Include {dir}/included", KNOWN),
    "the file of this host": ("RevokedHostKeys {dir}/%h", KNOWN),
    "a file with a variable": ("RevokedHostKeys ${TRUSTED}/empty", KNOWN),
    "a file in $HOME": ("RevokedHostKeys ~/empty", KNOWN),
    # where keys are listed
    "an alias": ("HostKeyAlias alias", "alias {ed25519}"),
    "an alias, and the key under the address": ("HostKeyAlias alias", KNOWN),
    "an alias in capitals": ("HostKeyAlias Alias", "alias {ed25519}"),
    "an alias in capitals, and the key under the bare name": ("HostKeyAlias Alias", HOST + " {ed25519}"),
    "a certificate with a name in capitals": ("HostKeyAlias Mixed", "@cert-authority * {ca}"),
    "a certificate with another name in capitals": ("HostKeyAlias mixed", "@cert-authority * {ca}"),
    "a certificate, and a name in capitals": ("HostKeyAlias ALIAS", "@cert-authority * {ca}"),
    "a global file": ("GlobalKnownHostsFile {known}\nUserKnownHostsFile none", KNOWN),
    "no file at all": ("UserKnownHostsFile none", KNOWN),
    "the second of two files": ("UserKnownHostsFile {dir}/missing {known}", KNOWN),
    "a file of the user by host": ("UserKnownHostsFile {known}-%h", KNOWN),
    "a file of the user by variable": ("UserKnownHostsFile ${TRUSTED}/listed", KNOWN),
    "a file of the user with a percent sign": ("UserKnownHostsFile {known}-%%h", KNOWN),
    "a file of the user in $HOME": ("UserKnownHostsFile ~/listed", KNOWN),
    "a global file in $HOME": ("GlobalKnownHostsFile ~/listed\nUserKnownHostsFile none", KNOWN),
    "a global file by host": ("GlobalKnownHostsFile {known}-%h\nUserKnownHostsFile none", KNOWN),
    "a global file by variable": ("GlobalKnownHostsFile ${TRUSTED}/listed\nUserKnownHostsFile none", KNOWN),
    "strict": ("StrictHostKeyChecking yes", KNOWN),
    "strict, and unknown": ("StrictHostKeyChecking yes", ""),
    "new keys are accepted, and it has changed": ("StrictHostKeyChecking accept-new", NAME + " {other}"),
    "no checks, and revoked": ("StrictHostKeyChecking no\nRevokedHostKeys {dir}/krl", KNOWN),
    "the address is checked": ("CheckHostIP yes", KNOWN),
    "DNS is asked": ("VerifyHostKeyDNS yes", KNOWN),
    "names are hashed": ("HashKnownHosts yes", KNOWN),
    # jump hosts
    "a known jump host": ("Host n0\n  ProxyJump j\nHost *", "[127.0.*]:{port} {ed25519}"),
    "an unknown jump host": ("Host n0\n  ProxyJump j\nHost *", KNOWN),
    "a revoked jump host": ("Host n0\n  ProxyJump j\nHost j\n  RevokedHostKeys {dir}/krl\nHost *", "* {ed25519}"),
    "a host behind a jump host is revoked": (
        "Host n0\n  ProxyJump j\n  RevokedHostKeys {dir}/krl\nHost *", "* {ed25519}",
    ),
    "a jump host with a cipher that it refuses": (
        "Host n0\n  ProxyJump j\nHost j\n  Ciphers aes256-ctr\nHost *", "* {ed25519}",
    ),
}  # fmt: skip
"""By name: lines of the ssh config, and of known_hosts. $TRUSTED and $HOME are {dir}, which is not the user's home."""

STRICTER = {
    "new keys are accepted": ("StrictHostKeyChecking accept-new", "", "its ED25519 host key is not known"),
    "all keys are accepted": ("StrictHostKeyChecking no", "", "its ED25519 host key is not known"),
    "changed keys are accepted": ("StrictHostKeyChecking no", NAME + " {other}", "its ED25519 host key HAS CHANGED"),
    "no check on loopback": ("NoHostAuthenticationForLocalhost yes", "", "its ED25519 host key is not known"),
    "a certificate for no host": (NAMELESS, "@cert-authority * {ca}", "is not valid: it is for no host"),
    "a command knows the hosts": (
        "KnownHostsCommand /bin/echo " + KNOWN, "", "sets KnownHostsCommand, which is not supported (write the lines"),
    "no cipher of ours": (
        "Ciphers chacha20-poly1305@openssh.com", CERTIFIED + " {of_certified}", "none of the Ciphers in its ssh",
    ),
    "no MAC of ours": (
        "MACs umac-128@openssh.com", CERTIFIED + " {of_certified}", "none of the MACs in its ssh config is supported",
    ),
    "no key exchange of ours": (
        "KexAlgorithms diffie-hellman-group18-sha512", CERTIFIED + " {of_certified}", "none of the KexAlgorithms in",
    ),
}  # fmt: skip
"""Where ssh accepts the host and the program does not, and what it says. docs/explanation/ssh.md lists them."""


def config_of(hosts: Hosts, folder: Path, settings: str, known: str) -> Path:
    """An ssh config with these lines and this known_hosts."""
    folder.mkdir()
    for name in ("known", f"known-{HOST}"):
        (folder / name).write_text(hosts.fill(known) + "\n", newline="")
    server = hosts.servers[SERVER_OF["{certified}" in known or "{ca}" in known or "{of_certified}" in known]]
    lines = hosts.fill(settings).replace("{known}", str(folder / "known"))
    files = f"Match all\n  UserKnownHostsFile {folder}/known\nHost j\n  HostName {JUMP}\n"
    (hosts.folder / "included").write_text(f"RevokedHostKeys {hosts.folder}/krl\n")
    return server.ssh_config(extra=f"{lines}\n{files}", path=folder / "config")


def by_ssh(config: Path) -> str:
    """Why `ssh` refuses the host; empty if it logs in."""
    command = [program("ssh"), "-F", str(config), "-o", "BatchMode=yes", "n0", "true"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stderr or "refused"


def by_us(config: Path, loop: EventLoop) -> str:
    """Why the program refuses it; empty if it logs in."""
    dialer = Dialer(loop, config_file=config, timeout=60)
    try:
        dialer.dial("n0").close()
    except HostUnreachable as error:
        return str(error)
    finally:
        dialer.close()
    return ""


def by_openssh(config: Path, loop: EventLoop) -> HostUnreachable | None:
    """Why the program refuses it where it uses `ssh`."""
    try:
        OpensshDialer(loop, config_file=config, timeout=60).dial("n0").run(["true"], timeout=60)
    except HostUnreachable as error:
        return error
    return None


@pytest.mark.parametrize("name", AS_SSH)
def test_a_host_is_accepted_exactly_if_ssh_accepts_it(
    name: str, hosts: Hosts, loop: EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TRUSTED", "HOME"):
        monkeypatch.setenv(variable, str(hosts.folder))
    settings, known = AS_SSH[name]
    theirs = by_ssh(config_of(hosts, tmp_path / "ssh", settings, known))
    ours = by_us(config_of(hosts, tmp_path / "ours", settings, known), loop)
    assert bool(ours) == bool(theirs), f"ssh: {theirs or 'accepted'}; the program: {ours or 'accepted'}"


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_SSH)
def test_over_the_ssh_command_a_host_is_accepted_exactly_if_ssh_accepts_it(
    name: str, hosts: Hosts, loop: EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TRUSTED", "HOME"):
        monkeypatch.setenv(variable, str(hosts.folder))
    settings, known = AS_SSH[name]
    theirs = by_ssh(config_of(hosts, tmp_path / "ssh", settings, known))
    ours = by_openssh(config_of(hosts, tmp_path / "ours", settings, known), loop)
    assert bool(ours) == bool(theirs), f"ssh: {theirs or 'accepted'}; the program: {ours or 'accepted'}"
    assert isinstance(ours, HostKeyRefused) == ("Host key verification failed" in theirs), str(ours)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRICTER)
def test_over_the_ssh_command_only_keys_that_are_known_are_accepted(
    name: str, hosts: Hosts, loop: EventLoop, tmp_path: Path
) -> None:
    settings, known, sentence = STRICTER[name]
    found = by_openssh(config_of(hosts, tmp_path / "ours", settings, known), loop)
    assert isinstance(found, HostKeyRefused) == sentence.startswith("its ED25519 host key"), str(found)


@pytest.mark.parametrize("name", STRICTER)
def test_where_the_program_is_stricter_than_ssh_it_says_why(
    name: str, hosts: Hosts, loop: EventLoop, tmp_path: Path
) -> None:
    settings, known, sentence = STRICTER[name]
    assert by_ssh(config_of(hosts, tmp_path / "ssh", settings, known)) == ""
    assert sentence in by_us(config_of(hosts, tmp_path / "ours", settings, known), loop)


@pytest.mark.parametrize(
    ("checks", "address", "is_without_port", "listed", "is_refused"),
    [
        (True, "192.0.2.7", False, "[192.0.2.7]:2222 {other}", True),
        (True, "192.0.2.7", False, "[192.0.2.7]:2222 {ecdsa}", True),
        (True, "fe80::1%eth0", False, "[fe80::1%eth0]:2222 {other}", True),
        (True, "192.0.2.7", False, "[192.0.2.7]:2222 {ed25519}", False),
        (True, "192.0.2.7", False, "192.0.2.7 {other}", False),
        (True, "192.0.2.7", False, "", False),
        (True, "192.0.2.7", True, "192.0.2.7 {other}", True),
        (True, "192.0.2.7", True, "[192.0.2.7]:2222 {other}", True),
        (True, "192.0.2.7", True, "[192.0.2.7]:2222 {ed25519}", False),
        (True, "192.0.2.7", True, "192.0.2.7 {ed25519}", False),
        (False, "192.0.2.7", True, "[192.0.2.7]:2222,192.0.2.7 {other}", False),
        (True, "127.0.0.1", True, "[127.0.0.1]:2222,127.0.0.1 {other}", False),
        (True, "", True, "* {other}", False),
    ],
)
def test_another_key_for_the_address_of_a_host_is_refused_if_the_config_checks_addresses(
    checks: bool, address: str, is_without_port: bool, listed: str, is_refused: bool, hosts: Hosts, tmp_path: Path
) -> None:
    (tmp_path / "known").write_text(hosts.fill(listed))
    files = (str(tmp_path / "known"),)
    settings = HostSettings(
        name="n0", hostname="n0", user="me", port=2222, known_hosts=files, trust=Trust(checks_address=checks)
    )
    offered = read_public(str(hosts.folder / "host_plain.pub"))
    assert offered is not None
    result = result_of_address(settings, address, offered, is_without_port=is_without_port)
    assert (result is not None and result.answer == "changed") == is_refused


def test_a_short_rsa_key_of_the_user_is_not_offered(hosts: Hosts, loop: EventLoop, tmp_path: Path) -> None:
    server = hosts.servers["plain"]
    key = keygen(tmp_path / "id_rsa", kind="rsa")
    server.authorized.write_text(f"{server.public(server.key)}\n{server.public(key)}\n")
    own = f"Host *\n  IdentityFile {key}\n  IdentitiesOnly yes\n"
    for bits, refused in (("3072", False), ("4096", True)):
        config = config_of(hosts, tmp_path / bits, f"{own}  RequiredRSASize {bits}", KNOWN)
        text = config.read_text().replace(f"IdentityFile {server.key}", "")
        config.write_text(text)
        assert bool(by_ssh(config)) == refused
        assert ("it has 3072 bits, and RequiredRSASize is 4096" in by_us(config, loop)) == refused
