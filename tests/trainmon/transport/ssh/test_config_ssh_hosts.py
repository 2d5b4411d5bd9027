"""The names in an ssh config, for choosing hosts."""

from __future__ import annotations

from pathlib import Path

from trainmon.transport.ssh.config import known_hosts_by_name


def test_the_hosts_of_an_ssh_config_are_found_through_include(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "config").write_text(
        'Include more/*.conf nowhere\nHost login1 # the way in\nHost *.cluster !x gpu-00?\n  User me\nHOST=a "b"\n'
    )
    (tmp_path / "more" / "1.conf").write_text("Host gpu-001 gpu-002\n")
    (tmp_path / "more" / "2.conf").write_text(f"Include {tmp_path}/config\nHost login1 n3\n")
    assert known_hosts_by_name(tmp_path / "config") == ("gpu-001", "gpu-002", "login1", "a", "b", "n3")


def test_no_ssh_config_knows_no_hosts(tmp_path: Path) -> None:
    assert known_hosts_by_name(tmp_path / "config") == ()


def test_an_include_of_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Include config config config\nHost a\n")
    assert known_hosts_by_name(tmp_path / "config") == ("a",)
