"""A real Kerberos: MIT's KDC on loopback, with one realm in a temporary directory."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.lab.sshd import DEADLINE, until

INSTALL = "Kerberos' {} is missing; install it: apt-get install -y krb5-kdc krb5-admin-server krb5-user"
REALM, PASSWORD = "TEST.LAB", "secret"


def program(name: str) -> str:
    """The path of a program of Kerberos; a missing one fails the run."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise RuntimeError(INSTALL.format(name))
    return found


class Kdc:
    """A running KDC that knows this user, and the services `host/NAME` of an sshd. `environ` names its files: for sshd,
    for `ssh` and for the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.environ = {
            "KRB5_CONFIG": f"{folder}/krb5.conf",
            "KRB5_KDC_PROFILE": f"{folder}/kdc.conf",
            "KRB5_KTNAME": f"{folder}/keytab",
            "KRB5CCNAME": f"FILE:{folder}/tickets",
        }

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path, *hosts: str) -> Iterator[Kdc]:
        """Start one, with a key for each host."""
        folder.mkdir()
        kdc = cls(folder)
        kdc._configure(hosts)
        with (folder / "log").open("wb") as log:
            command = [program("krb5kdc"), "-n", "-r", REALM]
            process = subprocess.Popen(command, env=os.environ | kdc.environ, stdout=log, stderr=log)
        try:
            until(kdc._answers, f"the KDC answers; its log: {folder}/log")
            yield kdc
        finally:
            process.terminate()
            process.wait(DEADLINE)

    def log_in(self) -> None:
        """Get a ticket for this user."""
        self._run("kinit", getpass.getuser(), stdin=PASSWORD)

    def log_out(self) -> None:
        self._run("kdestroy")

    def _configure(self, hosts: tuple[str, ...]) -> None:
        (self.folder / "krb5.conf").write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n"
            f" rdns = false\n forwardable = true\n[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[realms]\n {REALM} = {{\n"
            f"  database_name = {self.folder}/principal\n  key_stash_file = {self.folder}/stash\n"
            f"  kdc_listen = 127.0.0.1:{self._port}\n  kdc_tcp_listen = 127.0.0.1:{self._port}\n }}\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", PASSWORD)
        self._run("kadmin.local", "-q", f"addprinc -pw {PASSWORD} {getpass.getuser()}")
        for host in hosts:
            self._run("kadmin.local", "-q", f"addprinc -randkey host/{host}")
            self._run("kadmin.local", "-q", f"ktadd -k {self.folder}/keytab host/{host}")

    def _answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self._port)) == 0

    def _run(self, name: str, *words: str, stdin: str = "") -> None:
        command = [program(name), *words]
        done = subprocess.run(
            command, env=os.environ | self.environ, input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stderr}")
