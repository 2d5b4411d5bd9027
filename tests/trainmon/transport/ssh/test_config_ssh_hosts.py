"""The names in an ssh config, for choosing hosts."""

from __future__ import annotations

from pathlib import Path

from trainmon.transport.ssh.config import known_hosts_by_name, openssh_settings


def test_the_hosts_of_an_ssh_config_are_found_through_include(home: Path) -> None:
    folder = home.parent / "elsewhere" / ".ssh"
    (folder / "more").mkdir()
    (home / ".ssh" / "config").write_text(
        'Include more/*.conf nowhere\nHost login1 # the way in\nHost *.cluster !x gpu-00?\n  User me\nHOST=a "b"\n'
    )
    (folder / "more" / "1.conf").write_text("Host gpu-001 gpu-002\n")
    (folder / "more" / "2.conf").write_text(f'Include {home}/.ssh/config\n"Host" login1 n3\n  # it\'s\n')
    assert known_hosts_by_name() == ("gpu-001", "gpu-002", "login1", "a", "b", "n3")


def test_a_relative_include_of_any_config_is_where_ssh_looks_for_it(tmp_path: Path, home: Path) -> None:
    (tmp_path / "config").write_text("Include more ~/other\n")
    for folder in (tmp_path, home / ".ssh", home):
        for name in ("more", "other"):
            (folder / name).write_text("Host wrong\n  HostName wrong\n")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".ssh" / "more").write_text("Host one\n  HostName first\n")
    (elsewhere / "other").write_text("Host two\n  HostName second\n")
    assert [openssh_settings(name, tmp_path / "config").hostname for name in ("one", "two")] == ["first", "second"]
    assert known_hosts_by_name(tmp_path / "config") == ("one", "two")


def test_no_ssh_config_knows_no_hosts(tmp_path: Path) -> None:
    assert known_hosts_by_name(tmp_path / "config") == ()


def test_an_include_of_itself_ends(home: Path) -> None:
    text = "Include config config config\nHost a\n"
    for folder in (home, home.parent / "elsewhere"):
        (folder / ".ssh" / "config").write_text(text)
    assert known_hosts_by_name() == ("a",)
