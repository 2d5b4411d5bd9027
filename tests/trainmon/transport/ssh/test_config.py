"""Settings of a host: OpenSSH's own answer, and paramiko's where there is no ssh command."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmon.lib import HostUnreachable
from trainmon.transport.ssh.config import FALLBACK_NOTE, openssh_settings

CONFIG = """
Include {include}
Host a
  HostName %h.example
  User u
  Port 2200
  IdentityFile ~/.ssh/%r@%h
  IdentityFile "{dir}/with space"
  CertificateFile /x/%n-cert.pub
  ProxyCommand nc %h %p
  UserKnownHostsFile "{dir}/known hosts" /k2
  GlobalKnownHostsFile none
  IdentityAgent $MY_AGENT
  ServerAliveInterval 7
  ServerAliveCountMax 2
  ConnectTimeout 3
  PasswordAuthentication no
Host b
  ProxyJump u@j1:2222,j2
  HostKeyAlias alias
  IdentitiesOnly yes
  IdentityAgent none
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "with space").touch()
    (tmp_path / "known hosts").touch()
    include = tmp_path / "include"
    include.write_text("Match host c exec true\n  HostName from-match\n")
    path = tmp_path / "config"
    path.write_text(CONFIG.format(include=include, dir=tmp_path))
    return path


def test_everything_is_read_and_expanded(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_AGENT", "/run/agent")
    found = openssh_settings("a", config)
    assert (found.hostname, found.user, found.port) == ("a.example", "u", 2200)
    assert found.identity_files == (str(Path.home() / ".ssh/u@a.example"), f"{tmp_path}/with space")
    assert found.certificate_files == ("/x/a-cert.pub",)
    assert found.proxy_command == "nc a.example 2200"
    assert found.known_hosts == (f"{tmp_path}/known hosts", "/k2")
    assert (found.identity_agent, found.alive_interval, found.alive_count) == ("/run/agent", 7, 2)
    assert (found.connect_timeout, found.note) == (3.0, None)
    assert found.methods == {"publickey", "keyboard-interactive"}


def test_jumps_aliases_and_no_agent(config: Path) -> None:
    found = openssh_settings("b", config)
    assert found.proxy_jump == ("u@j1:2222", "j2")
    assert (found.host_key_alias, found.identities_only, found.identity_agent) == ("alias", True, None)
    assert found.proxy_command is None


def test_include_and_match_are_openssh_s_own(config: Path) -> None:
    assert openssh_settings("c", config).hostname == "from-match"


def test_a_user_and_port_given_in_a_jump_win(config: Path) -> None:
    found = openssh_settings("a", config, user="root", port=22)
    assert (found.user, found.port) == ("root", 22)
    assert openssh_settings("joe@b", config).user == "joe"


@pytest.mark.parametrize("name", ["", "-oProxyCommand=id", "a b", "a\nb", "$(id)", "a;id", "a|b", "`id`"])
def test_names_that_a_shell_would_act_on_are_refused(name: str, config: Path) -> None:
    with pytest.raises(HostUnreachable, match="is not a host name"):
        openssh_settings(name, config)


def test_a_broken_config_is_quoted_in_openssh_s_words(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host a\n  Colour blue\n")
    with pytest.raises(HostUnreachable, match=r"a: ssh rejects its config: .*line 2: Bad configuration option"):
        openssh_settings("a", path)


def test_the_first_message_of_a_broken_config_is_not_about_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host a\n  UserKnownHostsFile ${NO_SUCH_VARIABLE}\n")
    with pytest.raises(HostUnreachable, match=r"a: ssh rejects its config: .*\$\{NO_SUCH_VARIABLE\} has no value"):
        openssh_settings("a", path)


def test_the_home_is_that_of_the_user_database(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host a\n  IdentityFile ~/x\n  IdentityFile %d/y\n  RevokedHostKeys ~/z\n")
    found = openssh_settings("a", path)
    assert (found.identity_files, found.trust.revoked) == ((f"{home}/x", f"{home}/y"), f"{home}/z")


def test_without_an_ssh_command_paramiko_reads_it_and_says_so(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = openssh_settings("a", config)
    assert (found.hostname, found.user, found.port, found.note) == ("a.example", "u", 2200, FALLBACK_NOTE)
    assert openssh_settings("b", config).proxy_jump == ("u@j1:2222", "j2")


@pytest.mark.parametrize(
    "line",
    [
        "RevokedHostKeys /krl",
        '"RevokedHostKeys" = /krl',
        "\tciphers=aes128-ctr",
        "Match all\nHostKeyAlgorithms -ssh-rsa",
        "Include {dir}/included",
        "Include in_home",
    ],
)
def test_without_an_ssh_command_a_setting_that_restricts_trust_is_refused(
    line: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for included in (tmp_path / "included", home.parent / "elsewhere" / ".ssh" / "in_home"):
        included.write_text("Host *\n  RequiredRSASize\t4096\n")
    (tmp_path / "config").write_text(line.format(dir=tmp_path) + "\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostUnreachable, match=r"and there is no ssh command here to read it \(install the OpenSSH"):
        openssh_settings("a", tmp_path / "config")


def test_the_settings_that_restrict_trust_are_those_of_ssh(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host a\n  RevokedHostKeys ~/krl\n  RequiredRSASize 4096\n  CheckHostIP yes\n  Ciphers aes128-ctr\n"
    )
    found = openssh_settings("a", config).trust
    assert (found.revoked, found.rsa_bits, found.checks_address) == (str(Path.home() / "krl"), 4096, True)
    assert (found.ciphers, found.host_keys, found.key_exchanges) == (("aes128-ctr",), None, None)
    assert openssh_settings("b", config).trust.revoked is None
