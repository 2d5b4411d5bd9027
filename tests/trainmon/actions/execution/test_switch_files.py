"""Switch files on a host, by the real sh: on this machine, over a real sshd, and on filesystems that fail."""

from __future__ import annotations

import errno
import getpass
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lab import failing_files
from tests.lab.hung_mount import HungMount
from tests.lab.sshd import Sshd
from trainmon.actions.execution import operations
from trainmon.actions.execution.operations import Outcome
from trainmon.actions.planning import FileStat
from trainmon.lib import CommandFailed
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, LocalShell, Shell
from trainmon.transport.ssh.client import Dialer

NASTY = (
    "plain", "a'; echo foo", "two\nlines", "ends with a line feed\n", "-rf", "--", "$(id)", "`id`", "with  spaces ",
    "*", "?", "\\", "\\n", '"', "!!", "~", "#", "%s%n", "ü漢", "é", "\t", "..hidden", "a" * 255,
)  # fmt: skip
TEXT = "trainmon-tui kill by ana from laptop at 2026-11-21T12:00:00Z: it's $(late) `now` \\n %s (0123456789ab)"


class Before:
    """A shell whose commands run under a prefix, such as another user or a failing filesystem."""

    prompted = False

    def __init__(self, shell: Shell, prefix: Sequence[str]) -> None:
        self.host = shell.host
        self._shell = shell
        self._prefix = prefix

    def run(self, argv: Sequence[str], *, timeout: float) -> Completed:
        return self._shell.run([*self._prefix, *argv], timeout=timeout)


@pytest.fixture(scope="module")
def reader() -> Iterator[EventLoop]:
    made = EventLoop()
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def local(reader: EventLoop) -> Iterator[LocalShell]:
    made = LocalShell(reader)
    yield made
    made.close()


@pytest.fixture(scope="module")
def remote(reader: EventLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with Sshd.start(tmp_path_factory.mktemp("sshd")) as sshd:
        dialer = Dialer(reader, config_file=sshd.ssh_config())
        yield dialer.dial("n0")
        dialer.close()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return failing_files.build(tmp_path_factory.mktemp("failing"))


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def read(shell: Shell | Before, path: str) -> FileStat:
    return operations.parse_stat(path, shell.run(operations.stat(path), timeout=60))


def create(shell: Shell | Before, path: str, text: str = TEXT) -> Outcome:
    return operations.create_result(path, shell.run(operations.create(path, text, "0123456789ab"), timeout=60))


def remove(shell: Shell | Before, path: str, mark: str = "") -> Outcome:
    return operations.remove_result(path, shell.run(operations.remove(path, mark), timeout=60))


def come_and_go(shell: Shell, path: Path) -> None:
    name = str(path)
    assert read(shell, name).exists is False
    assert create(shell, name).status == "done"
    assert path.read_text() == TEXT + "\n"
    stat = read(shell, name)
    assert (stat.exists, stat.why, stat.armed_at) == (True, TEXT, int(path.stat().st_mtime))
    assert names(path.parent) == [path.name]
    assert remove(shell, name, stat.mark).status == "done"
    assert names(path.parent) == []


@pytest.mark.parametrize("name", NASTY)
def test_a_nasty_name_is_a_name(local: LocalShell, tmp_path: Path, name: str) -> None:
    come_and_go(local, tmp_path / name)


def test_a_nasty_name_is_a_name_over_ssh(remote: Shell, tmp_path: Path) -> None:
    for name in ("a'; echo foo", "two\nlines\n", "-rf", "$(id)", '`id` \\ "', "!!", "ü漢"):
        come_and_go(remote, tmp_path / name)


def test_a_nasty_directory_is_a_directory(local: LocalShell, tmp_path: Path) -> None:
    for name in ("$(id)", "-d", "two\nlines\n"):
        folder = tmp_path / name
        folder.mkdir()
        come_and_go(local, folder / "kill")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), max_size=200))
def test_any_text_arrives_as_it_is(local: LocalShell, tmp_path: Path, text: str) -> None:
    path = tmp_path / "kill"
    assert create(local, str(path), text).status == "done"
    assert path.read_bytes() == text.encode() + b"\n"
    path.unlink()


def test_a_name_that_is_no_utf_8_is_one_too(local: LocalShell, tmp_path: Path) -> None:
    come_and_go(local, tmp_path / os.fsdecode(b"\xff\xfe"))


def test_the_group_may_remove_it_whatever_the_umask_is(local: LocalShell, tmp_path: Path) -> None:
    path = tmp_path / "kill"
    for mask in ("0077", "0000", "0777"):
        shell = Before(local, ["sh", "-c", f'umask {mask}; exec "$@"', "sh"])
        assert create(shell, str(path)).status == "done"
        assert path.stat().st_mode & 0o777 == 0o664
        path.unlink()


def test_one_that_is_there_is_left_as_it_is(local: LocalShell, tmp_path: Path) -> None:
    path = tmp_path / "kill"
    path.write_text("by ben\n")
    answer = create(local, str(path))
    assert answer.status == "failed"
    assert answer.message.startswith(f"{path} exists already, by ")
    assert answer.message.endswith(": “by ben”: it was not changed")
    assert path.read_text() == "by ben\n"
    assert names(tmp_path) == ["kill"]


def test_the_beginning_of_a_file_is_read_line_by_line(local: LocalShell, tmp_path: Path) -> None:
    (tmp_path / "kill").write_text("one\n\x1b[31mtwo\n" + "x" * 600)
    found = read(local, str(tmp_path / "kill"))
    assert (found.why, found.content[:2], len(found.content[2])) == ("one", ("one", "two"), 487)


def test_a_link_to_nowhere_is_not_armed_but_nothing_is_created_over_it(local: LocalShell, tmp_path: Path) -> None:
    path = tmp_path / "kill"
    path.symlink_to("nowhere")
    found = read(local, str(path))
    assert (found.exists, found.error) == (False, "a dangling symbolic link to nowhere: it does not arm the switch")
    (tmp_path / "target").touch()
    (tmp_path / "other").symlink_to("target")
    assert read(local, str(tmp_path / "other")).exists
    (tmp_path / "other").unlink()
    (tmp_path / "target").unlink()
    assert "exists already" in create(local, str(path)).message
    assert names(tmp_path) == ["kill"]


SHELLS = [["sh"], ["bash", "--posix"], ["busybox", "sh"]]
NOT_PLAIN: dict[str, Callable[[Path, Path], object]] = {
    "a symbolic link": lambda secret, kill: kill.symlink_to(secret),
    "a hard link": lambda secret, kill: kill.hardlink_to(secret),
    "a FIFO": lambda secret, kill: os.mkfifo(kill),
    "a directory": lambda secret, kill: kill.mkdir(),
}


@pytest.mark.parametrize("prefix", SHELLS, ids=lambda argv: argv[0])
@pytest.mark.parametrize("target", ["kill", "file/kill"])
def test_a_link_in_a_circle_or_below_a_file_does_not_arm(
    target: str, prefix: list[str], local: LocalShell, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "kill"
    path.symlink_to(target)
    answer = local.run([*prefix, *operations.stat(str(path))[1:]], timeout=60)
    found = operations.parse_stat(str(path), answer)
    assert (found.exists, found.error) == (False, f"a dangling symbolic link to {target}: it does not arm the switch")


@pytest.mark.parametrize("prefix", SHELLS, ids=lambda argv: argv[0])
@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_what_is_no_plain_file_is_armed_by_its_kind_and_owner_and_without_a_text(
    local: LocalShell, tmp_path: Path, kind: str, prefix: list[str]
) -> None:
    secret, path = tmp_path / "secret", tmp_path / "kill"
    secret.write_text("topic-4711\n")
    NOT_PLAIN[kind](secret, path)
    answer = local.run([*prefix, *operations.stat(str(path))[1:]], timeout=60)
    found = operations.parse_stat(str(path), answer)
    assert (found.exists, found.why, found.error) == (True, "", None)
    assert (found.by, found.content) == (f"{getpass.getuser()} with {kind}", (f"{kind}: its text is not read",))
    asked = [operations.create(str(path), TEXT, "abc"), operations.remove(str(path), "another mark")]
    assert b"4711" not in b"".join(local.run([*prefix, *argv[1:]], timeout=60).stdout for argv in asked)
    if kind != "a directory":
        assert remove(local, str(path), found.mark).status == "done"
        assert not path.is_symlink()
    assert secret.read_text() == "topic-4711\n"


def test_a_switch_that_is_a_link_to_a_directory_can_be_removed(local: LocalShell, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "kill").symlink_to("folder")
    assert remove(local, str(tmp_path / "kill"), read(local, str(tmp_path / "kill")).mark).status == "done"
    assert names(tmp_path) == ["folder"]


def test_without_stat_no_text_is_read(local: LocalShell, tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sh", "ls", "grep", "head", "readlink"):
        (commands / name).symlink_to(shutil.which(name) or name)
    (tmp_path / "kill").write_text("by ben\n")
    found = read(Before(local, ["env", f"PATH={commands}"]), str(tmp_path / "kill"))
    assert (found.exists, found.why, found.by, found.mark) == (True, "", None, "")


def test_of_many_at_once_one_wins_and_its_text_is_whole(local: LocalShell, tmp_path: Path) -> None:
    path = tmp_path / "kill"
    answers: list[Outcome] = []

    def drop(number: int) -> None:
        argv = operations.create(str(path), f"line of {number}", f"{number:012x}")
        answers.append(operations.create_result(str(path), local.run(argv, timeout=60)))

    threads = [threading.Thread(target=drop, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(answer.status for answer in answers) == ["done"] + ["failed"] * 7
    assert path.read_text().startswith("line of ")
    assert names(tmp_path) == ["kill"]


def test_another_file_than_the_one_seen_is_left(local: LocalShell, tmp_path: Path) -> None:
    path = tmp_path / "kill"
    path.write_text("mine\n")
    mark = read(local, str(path)).mark
    path.unlink()
    path.write_text("of somebody else\n")
    answer = remove(local, str(path), mark)
    assert answer.status == "failed"
    assert "is no longer the file that was shown" in answer.message
    assert path.exists()


def test_one_that_is_gone_is_as_wanted(local: LocalShell, tmp_path: Path) -> None:
    assert remove(local, str(tmp_path / "kill"), "1 2 3 ana") == Outcome("done", f"{tmp_path}/kill was gone already")


def test_a_missing_directory_is_a_sentence(local: LocalShell, tmp_path: Path) -> None:
    path = f"{tmp_path}/none/kill"
    assert read(local, path) == FileStat(path=path, error="its directory is missing")
    assert create(local, path) == Outcome("failed", f"{path} was not created: its directory is missing")
    assert remove(local, path) == Outcome("failed", f"{path} was not removed: its directory is missing")


def test_a_directory_that_is_a_file_is_a_sentence(local: LocalShell, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = f"{tmp_path}/file/kill"
    assert create(local, path).message == f"{path} was not created: its parent is not a directory"


def test_a_switch_that_is_a_directory_is_a_sentence(local: LocalShell, tmp_path: Path) -> None:
    assert create(local, str(tmp_path)).message == f"{tmp_path} was not created: it is a directory"
    assert remove(local, str(tmp_path)).message == f"{tmp_path} was not removed: it is a directory"
    assert names(tmp_path) == []


def nobody(shell: Shell) -> Shell | Before:
    """Somebody who is not root, who may do everything."""
    if os.getuid() != 0:
        return shell
    return Before(shell, ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"])


def test_a_directory_that_is_not_ours_is_a_sentence(local: LocalShell, open_path: Path) -> None:
    folder = open_path / "closed"
    folder.mkdir(mode=0o555)
    path = f"{folder}/kill"
    assert create(nobody(local), path) == Outcome("failed", f"{path} was not created: no permission in its directory")
    folder.chmod(0o000)
    assert read(nobody(local), path).error == "no permission in its directory"
    folder.chmod(0o755)


def test_what_may_not_be_read_is_not_called_empty_or_armed(local: LocalShell, open_path: Path) -> None:
    (open_path / "closed").mkdir()
    (open_path / "closed" / "target").touch()
    (open_path / "hidden").write_text("by ben\n")
    (open_path / "link").symlink_to("closed/target")
    for path in (open_path / "closed", open_path / "hidden"):
        path.chmod(0o000)
    hidden, link = (read(nobody(local), str(open_path / name)) for name in ("hidden", "link"))
    (open_path / "closed").chmod(0o755)
    assert (hidden.exists, hidden.by) == (True, f"{getpass.getuser()} with an unreadable file")
    assert hidden.content == ("an unreadable file: its text is not read",)
    assert (link.exists, link.error) == (None, "no permission in its directory")


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("create", errno.EROFS, "its filesystem is read-only"),
        ("create", errno.ENOSPC, "no space is left on its filesystem, or no inodes (df -h, df -i)"),
        ("create", errno.EDQUOT, "the disk quota is used up"),
        ("create", errno.EIO, "its filesystem gives I/O errors"),
        ("create", errno.ESTALE, "its directory was removed or remounted on the server (stale file handle)"),
        ("create", errno.ENOTCONN, "its filesystem has lost its server"),
        ("write", errno.ENOSPC, "no space is left on its filesystem, or no inodes (df -h, df -i)"),
        ("write", errno.EDQUOT, "the disk quota is used up"),
        ("write", errno.EIO, "its filesystem gives I/O errors"),
    ],
)
def test_a_failing_filesystem_is_a_sentence_and_leaves_nothing(
    local: LocalShell, tmp_path: Path, library: Path, call: str, number: int, words: str
) -> None:
    shell = Before(local, failing_files.prefix(library, tmp_path, call, number))
    path = tmp_path / "kill"
    assert create(shell, str(path)) == Outcome("failed", f"{path} was not created: {words}")
    assert names(tmp_path) == []


def test_it_is_created_where_there_are_no_hard_links(local: LocalShell, tmp_path: Path, library: Path) -> None:
    shell = Before(local, failing_files.prefix(library, tmp_path, "link", errno.EPERM))
    path = tmp_path / "kill"
    assert create(shell, str(path)).status == "done"
    assert (path.read_text(), path.stat().st_mode & 0o777) == (TEXT + "\n", 0o664)
    assert names(tmp_path) == ["kill"]


def test_a_server_that_says_it_exists_of_what_it_has_just_linked_has_done_it(local: LocalShell, tmp_path: Path) -> None:
    commands, folder = tmp_path / "bin", tmp_path / "nfs"
    commands.mkdir()
    folder.mkdir()
    (commands / "ln").write_text('#!/bin/sh\n/bin/ln "$@"\necho "ln: File exists" >&2\nexit 1\n')
    (commands / "ln").chmod(0o755)
    shell = Before(local, ["env", f"PATH={commands}:{os.environ['PATH']}"])
    assert create(shell, str(folder / "kill")) == Outcome("done", f"{folder}/kill is there")
    assert names(folder) == ["kill"]


def test_a_file_that_cannot_be_removed_is_a_sentence(local: LocalShell, tmp_path: Path, library: Path) -> None:
    path = tmp_path / "kill"
    path.touch()
    shell = Before(local, failing_files.prefix(library, tmp_path, "unlink", errno.EROFS))
    assert remove(shell, str(path)) == Outcome("failed", f"{path} was not removed: its filesystem is read-only")


def test_a_hung_mount_times_out_and_no_switch_appears_when_it_comes_back(tmp_path: Path) -> None:
    mount = HungMount.at(tmp_path / "dead", tmp_path)
    mount.hang()
    path = mount.folder / "kill"
    # The script's own clock is a command: this one says that 20 s more have gone by each time.
    tools = tmp_path / "tools"
    tools.mkdir()
    clock = tools / "date"
    clock.write_text('#!/bin/sh\necho x >>"$0.calls"; echo $(($(wc -l <"$0.calls") * 21))\n')
    clock.chmod(0o755)
    argv = operations.create(str(path), TEXT, "0123456789ab")
    process = subprocess.Popen(
        argv, env=mount.env | {"PATH": f"{tools}:{os.environ['PATH']}"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    mount.recover()
    out, err = process.communicate(timeout=60)
    answer = operations.create_result(str(path), Completed(process.returncode, out, err))
    assert answer == Outcome("failed", f"{path} was not created: its filesystem took longer than 20s to answer")
    assert names(mount.folder) == []


def test_a_shell_that_does_not_answer_is_an_error(local: LocalShell) -> None:
    slow = Before(local, ["sh", "-c", "sleep 30", "sh"])
    with pytest.raises(CommandFailed, match="did not end"):
        slow.run(operations.stat("/tmp"), timeout=0.1)


def test_the_scripts_are_one_line_each() -> None:
    for script in (operations.STAT, operations.CREATE, operations.REMOVE):
        assert "\n" not in script


@pytest.mark.parametrize("shell", ["bash", "busybox"])
def test_other_shells_do_the_same(local: LocalShell, tmp_path: Path, shell: str) -> None:
    # sh is dash on Debian, bash on Red Hat, busybox on Alpine.
    prefix = {"bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}[shell]
    path = str(tmp_path / "kill -x 'y'")

    def run(argv: tuple[str, ...]) -> Completed:
        return local.run([*prefix, *argv[1:]], timeout=60)

    assert operations.create_result(path, run(operations.create(path, TEXT, "abc"))).status == "done"
    stat = operations.parse_stat(path, run(operations.stat(path)))
    assert stat.why == TEXT
    assert operations.create_result(path, run(operations.create(path, TEXT, "abc"))).status == "failed"
    assert operations.remove_result(path, run(operations.remove(path, stat.mark))).status == "done"
    assert names(tmp_path) == []
