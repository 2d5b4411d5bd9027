"""Older lines of a log are read, searched and found in the file, by real commands on this machine and over SSH."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import pytest

from collectors.probe.files.lines import Lines
from tests.lab.sshd import Sshd
from trainmon.lib import HostUnreachable
from trainmon.model import WANDB, Log, LogHits, LogPart, Run, RunSpec
from trainmon.runtime import log_file
from trainmon.runtime.log_file import LogFile, cut_lines
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, LocalShell, Shell
from trainmon.transport.ssh.client import Dialer

BEGAN = datetime(2026, 1, 2, 3, tzinfo=UTC).timestamp()
EVERY = 7.0


@cache
def dated(number: int) -> str:
    return (
        f"{datetime.fromtimestamp(BEGAN + EVERY * number, UTC):%Y-%m-%d %H:%M:%S} iteration {number}/ 9000 | loss: 2.5"
    )


def saved(log: LogFile, file: Path) -> str:
    replies = queue.SimpleQueue[tuple[str, bool]]()
    log.save(file, lambda *reply: replies.put(reply))
    while not (reply := replies.get(timeout=120))[1]:
        assert reply[0].startswith("saved ")
    return reply[0]


def test_a_file_is_saved_byte_for_byte_and_a_failure_leaves_nothing(tmp_path: Path, shell: Shell) -> None:
    source, mine = tmp_path / "a.out", tmp_path / "new" / "mine.log"
    source.write_bytes(bytes(range(256)) * 3_000)
    run = Run(spec=RunSpec(name="llm", cluster="c"), log=Log(host="n0", path=str(source)))
    log = LogFile(run, lambda _: shell, ())
    assert saved(log, mine) == f"750 KiB in {mine}"
    assert mine.read_bytes() == source.read_bytes()
    assert saved(log, mine).startswith("not saved: ")
    assert mine.read_bytes() == source.read_bytes()
    source.unlink()
    assert saved(log, tmp_path / "other.log").startswith("not saved: ")
    assert [*tmp_path.rglob("*")] == [mine.parent, mine]


def test_of_a_file_that_grows_what_it_had_is_saved_and_a_stopped_save_leaves_nothing(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "SAVED_AT_ONCE", 1_000)
    source, mine = tmp_path / "a.out", tmp_path / "mine.log"
    source.write_bytes(b"x" * 10_000)
    log = LogFile(Run(spec=RunSpec(name="llm", cluster="c"), log=Log(host="n0", path=str(source))), lambda _: shell, ())
    replies = queue.SimpleQueue[str]()

    def grown(sentence: str, is_last: bool) -> None:
        with source.open("ab") as opened:
            opened.write(b"y" * 2_000)
        replies.put(sentence)

    log.save(mine, grown)
    said = [replies.get(timeout=60) for _ in range(11)]
    assert said[3] == f"saved 2.9 KiB of 9.8 KiB into {mine}"
    assert said[-1] == f"9.8 KiB in {mine}"
    assert mine.read_bytes() == b"x" * 10_000

    ends = queue.SimpleQueue[Callable[[], None]]()

    def stopping(sentence: str, is_last: bool) -> None:
        if not is_last:
            ends.get(timeout=60)()
        replies.put(sentence)

    ends.put(log.save(tmp_path / "second.log", stopping))
    assert replies.get(timeout=60).startswith("saved 0 B of ")
    assert replies.get(timeout=60) == "not saved: stopped"
    assert sorted(tmp_path.iterdir()) == [source, mine]


class Busybox(LocalShell):
    """A host with the programs of busybox only."""

    def __init__(self, loop: EventLoop, tools: Path) -> None:
        super().__init__(loop, host="n0")
        self._tools = tools
        busybox = shutil.which("busybox")
        assert busybox is not None
        for applet in subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split():
            (tools / applet).symlink_to(busybox)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
        program, *words = argv
        only = ("env", "-i", f"PATH={self._tools}", str(self._tools / program), *words)
        return super().run(only, stdin=stdin, timeout=timeout)


@pytest.fixture(scope="module", params=["local", "ssh", "busybox"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    loop = EventLoop()
    loop.start()
    if request.param == "local":
        local = LocalShell(loop, host="n0")
        yield local
        local.close()
    elif request.param == "busybox":
        yield Busybox(loop, tmp_path_factory.mktemp("busybox"))
    else:
        prints = 'echo Welcome; eval "$SSH_ORIGINAL_COMMAND"'  # as many a login script does
        with Sshd.start(tmp_path_factory.mktemp("sshd"), ForceCommand=prints) as sshd:
            dialer = Dialer(loop, config_file=sshd.ssh_config())
            yield dialer.dial("n0")
            dialer.close()
    loop.stop()


Make = Callable[..., LogFile]


HERE = pytest.mark.parametrize(
    "shell", ["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ssh", "busybox"))], indirect=True
)
"""Of tests with large files: other tests do the same with small ones, on each host."""


@pytest.fixture
def opened(shell: Shell, tmp_path: Path) -> Make:
    return opener(shell, tmp_path)


def opener(shell: Shell, tmp_path: Path) -> Make:
    def make(lines: Sequence[str] | bytes, known: int = 20, path: str | None = None, host: str = "n0") -> LogFile:
        file = tmp_path / "train $(id)' log.out"
        file.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
        last = () if isinstance(lines, bytes) else tuple(lines)[-known:]
        log = Log(host=host, path=path or str(file), lines=last, at=BEGAN + EVERY * (len(lines) - 1))
        return LogFile(Run(spec=RunSpec(name="llm", cluster="c"), log=log), lambda _: shell, ())

    return make


LEAVES = """
import sys, threading
from pathlib import Path
from trainmon.model import Log, Run, RunSpec
from trainmon.runtime.log_file import LogFile
from trainmon.transport.files import FileRange

asked = threading.Event()

class Slow(LogFile):
    def _range(self, start, length, pattern=""):
        if length:
            asked.set()
            threading.Event().wait()
        return FileRange("1:2", 10, 0, b"")

run = Run(spec=RunSpec(name="llm", cluster="c"), log=Log(host="n0", path="/a.out"))
Slow(run, None, ()).save(Path(sys.argv[1]), lambda text, is_last: None)
asked.wait(60)
print(*(one.suffix for one in Path(sys.argv[1]).parent.iterdir()))
"""


def test_a_program_that_ends_during_a_save_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "new" / "mine.log"
    ended = subprocess.run([sys.executable, "-c", LEAVES, str(file)], capture_output=True, text=True, timeout=120)

    assert (ended.returncode, ended.stdout) == (0, ".part\n"), ended.stderr
    assert not [*file.parent.iterdir()]


def part_of(ask: Callable[[Callable[[LogPart], object]], None]) -> LogPart:
    replies = queue.SimpleQueue[LogPart]()
    ask(replies.put)
    return replies.get(timeout=60)


def all_hits(file: LogFile, text: str) -> list[LogHits]:
    replies, got = queue.SimpleQueue[LogHits](), list[LogHits]()
    file.search(text, replies.put)
    while not got or not (got[-1].is_done or got[-1].error):
        got.append(replies.get(timeout=60))
    return got


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_a_log_is_read_from_its_first_to_its_last_line_without_a_gap(opened: Make) -> None:
    lines = [dated(number) for number in range(3_000)]
    file = opened(lines)
    whole = part_of(lambda reply: file.read(0, 64 * 1024, reply))
    assert whole.lines[0] == lines[0]
    assert whole.numbers[7] is not None
    assert whole.numbers[7].step == 7
    while whole.end < whole.size:
        later = part_of(partial(file.read, whole.end, whole.end + 64 * 1024))
        assert later.start == whole.end
        whole += later
    assert list(whole.lines) == lines
    assert not part_of(lambda reply: file.read(whole.size, whole.size + 1, reply)).lines

    earlier = part_of(lambda reply: file.read(whole.offsets[2_000] - 9_999, whole.offsets[2_000], reply))
    assert earlier.end == whole.offsets[2_000]
    assert earlier.lines[-1] == lines[1_999]
    assert earlier.lines[0] in lines


def test_the_known_lines_are_found_with_those_above_them(opened: Make) -> None:
    lines = [dated(number) for number in range(30_000)]
    file = opened(lines, known=3_000)
    near = sum(len(line) + 1 for line in lines[:-3_000])
    part = part_of(lambda reply: file.above(lines[-3_000:-2_997], near, reply))
    assert part.found == log_file.AROUND
    assert part.lines[part.found] == lines[-3_000]
    assert part.lines[part.found - 1] == lines[-3_001]
    assert part_of(lambda reply: file.above(["nothing", "of", "it"], near, reply)).error == (
        "the lines that are shown were not found in the file"
    )
    short = part_of(lambda reply: opened(lines[:50]).above(lines[30:33], 2_000, reply))
    assert (short.start, short.found) == (0, 30)


@HERE
@pytest.mark.parametrize("near", [0, 9_999_999])
def test_the_known_lines_are_found_wherever_they_are_in_a_file_that_grows_fast(opened: Make, near: int) -> None:
    lines = [f"\x1b[32m{dated(number)}\x1b[0m" for number in range(90_000)]
    part = part_of(lambda reply: opened(lines).above([dated(number) for number in range(40_000, 40_003)], near, reply))
    assert part.found == log_file.AROUND
    assert part.lines[part.found - 1] == dated(39_999)


def test_the_files_that_rotation_has_made_are_named_where_the_file_begins(opened: Make, tmp_path: Path) -> None:
    file = opened([dated(number) for number in range(3_000)])
    for number, more in enumerate((".2.gz", "-20260101", ".1", ".bak", ".1 $(id)'")):
        old = tmp_path / f"train $(id)' log.out{more}"
        old.write_text("older\n")
        os.utime(old, (BEGAN + number, BEGAN + number))
    names = tuple(f"train $(id)' log.out{more}" for more in (".1 $(id)'", ".1", "-20260101", ".2.gz"))
    assert part_of(lambda reply: file.read(0, 9_000, reply)).older == names
    assert part_of(lambda reply: file.read(90_000, 99_000, reply)).older == ()
    assert all_hits(file, "nowhere")[-1].older == names


NASTY = (
    b"colours \x1b[32mloss\x1b[0m 2.1\n"
    b"no \xff\xfe UTF-8 \xe2\x82\n"
    b"\0\0hole\n"
    b"HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdef\n"
    b"a  1%\ra 50%\ra 99%\n"
    b"{\"log\":\"step 3 loss 2.0\\n\",\"stream\":\"stdout\",\"time\":\"2026-01-02T03:04:05Z\"}\n"
    b"outer 1/3 [00:01<00:02]\n  inner 5/5\x1b[A\nnext\n"
    b"cafe\xcc\x81 " + b"x" * 20_000 + b"\n"
    b"last"
)  # fmt: skip


def test_old_lines_are_cut_and_cleaned_as_new_ones_are() -> None:
    new = Lines()
    new.feed(NASTY + b"\n")
    offsets, lines, end = cut_lines(NASTY, 0, is_end=True)
    assert list(lines) == [log_file.cleaned(line) for line in new.take()["lines"]]
    assert "HF_TOKEN=***" in lines
    assert end == len(NASTY)
    assert [NASTY[at - 1 : at] for at in offsets[1:]] == [b"\n"] * (len(offsets) - 1)


def test_a_file_of_one_physical_line_shows_its_states(opened: Make) -> None:
    states = [f"step {number}/90000 loss 2.5" for number in range(90_000)]
    file = opened("\r".join(states).encode())
    part = part_of(lambda reply: file.read(1_000_000, 1_060_000, reply))
    assert set(part.lines) <= set(states)
    assert len(part.lines) > 1_000
    earlier = part_of(lambda reply: file.read(part.start - 60_000, part.start, reply))
    assert states.index(earlier.lines[-1]) + 1 == states.index(part.lines[0])


def test_a_log_that_is_replaced_or_truncated_meanwhile_says_so(opened: Make, tmp_path: Path) -> None:
    lines = [dated(number) for number in range(3_000)]
    file, path = opened(lines), next(tmp_path.iterdir())
    assert part_of(lambda reply: file.read(0, 9_000, reply)).error is None
    path.write_text("begun again\n")
    assert part_of(lambda reply: file.read(9_000, 18_000, reply)).error == "the log was replaced or truncated meanwhile"
    path.unlink()
    error = part_of(lambda reply: file.read(9_000, 18_000, reply)).error
    assert error is not None
    assert error.endswith("No such file or directory")


def test_a_host_that_is_down_and_a_console_of_wandb_are_reasons(opened: Make) -> None:
    def down(host: str) -> Shell:
        raise HostUnreachable(host, f"{host} is not connected")

    run = Run(spec=RunSpec(name="llm", cluster="c"), log=Log(host="n0", path="/train.log"))
    assert part_of(lambda reply: LogFile(run, down, ()).read(0, 9, reply)).error == "n0 is not connected"
    assert all_hits(LogFile(run, down, ()), "loss")[-1].error == "n0 is not connected"
    console = opened([], host=WANDB)
    assert part_of(lambda reply: console.read(0, 9, reply)).error == "only the last lines of this log can be read"


def test_a_slow_link_has_the_time_that_a_long_range_takes() -> None:
    class Slow(LocalShell):
        def __init__(self) -> None:
            self.asked: list[tuple[int, float]] = []

        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
            count = int(argv[6])
            self.asked.append((count, timeout))
            return Completed(0, b"trainmon-tui|1 2|999999999||\n" + (b"%d\n" % count if argv[7] else b"x" * count), b"")

    slow, run = Slow(), Run(spec=RunSpec(name="llm", cluster="c"), log=Log(host="n0", path="/train.log"))
    assert part_of(lambda reply: LogFile(run, lambda _: slow, ()).read(0, 9_000_000, reply)).error is None
    assert all(timeout > count / 40_000 + 5.0 for count, timeout in slow.asked)
    assert max(slow.asked)[0] > 4_000_000


class Metered(LocalShell):
    """This machine, with the bytes that it has answered, and something else at each command."""

    answered = 0
    first: Callable[[], object] = bool

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
        answer = super().run(argv, stdin=stdin, timeout=timeout)
        self.answered += len(answer.stdout)
        self.first()
        return Completed(answer.status, answer.stdout, b"bash: warning: setlocale: cannot change locale (en_US)\n")


@pytest.fixture
def metered() -> Iterator[Metered]:
    loop = EventLoop()
    loop.start()
    metered = Metered(loop, host="n0")
    yield metered
    metered.close()
    loop.stop()


def test_a_slow_link_carries_only_what_is_shown(metered: Metered, tmp_path: Path) -> None:
    lines = [dated(number) for number in range(60_000)]
    file = opener(metered, tmp_path)(lines)
    assert part_of(lambda reply: file.above(lines[20_000:20_003], 0, reply)).error is None
    assert all_hits(file, "iteration 59")[-1].error is None, "what a host says at each login is no error"
    part = part_of(lambda reply: file.read(0, 1_000_000, reply))
    assert part.end > 999_000
    assert metered.answered < 250_000


def test_two_reads_at_a_time_in_a_file_that_grows_are_no_other_file(metered: Metered, tmp_path: Path) -> None:
    file = opener(metered, tmp_path)([dated(number) for number in range(3_000)])
    log = file._run.log
    assert log is not None
    assert log.path is not None
    path = Path(log.path)

    def grow_and_read() -> None:
        metered.first = bool
        with path.open("a") as opened:
            opened.write("more\n" * 1_000)
        assert part_of(lambda reply: file.read(0, 9_000, reply)).error is None

    metered.first = grow_and_read
    assert part_of(lambda reply: file.read(0, 9_000, reply)).error is None


def test_a_range_that_is_not_read_to_its_end_is_an_error() -> None:
    class Broken(LocalShell):
        def __init__(self) -> None:
            pass

        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
            return Completed(
                0,
                b"trainmon-tui|1 2|99999||\n" + (b"7\n5000\n" if argv[7] else b"x" * 5_000),
                b"tail: read error: Input/output error\n",
            )

    run = Run(spec=RunSpec(name="llm", cluster="c"), log=Log(host="n0", path="/train.log"))
    broken = LogFile(run, lambda _: Broken(), ())
    assert part_of(lambda reply: broken.read(0, 9_000, reply)).error == "/train.log: Input/output error"
    assert all_hits(broken, "loss")[-1].error == "/train.log: Input/output error"


# ---- searching -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("LOSS 2.1", [b"colours \x1b[32mloss\x1b[0m 2.1"]),
        ("2.1", [b"colours \x1b[32mloss\x1b[0m 2.1"]),
        ('$(id)\'; "`x`" \\d [a-z]* {2} (|) ^&?+', [b'quoted $(id)\'; "`x`" \\d [a-z]* {2} (|) ^&?+ end']),
        ("GRÖSSE", ["Größe oder größe: GRÖSSE".encode(), "eine grösse".encode()]),
        ("nowhere", []),
    ],
)
def test_a_search_finds_what_the_screen_shows_and_its_text_is_only_a_text(
    opened: Make, text: str, found: list[bytes]
) -> None:
    lines = [
        b"colours \x1b[32mloss\x1b[0m 2.1", b"2x1", b"quoted $(id)'; \"`x`\" \\d [a-z]* {2} (|) ^&?+ end", b"\xff\xfe",
        "Größe oder größe: GRÖSSE".encode(), "eine grösse".encode(),
    ]  # fmt: skip
    data = b"\n".join(lines)
    hits = all_hits(opened(data), text)[-1]
    assert (hits.begin, hits.size, hits.error) == (0, len(data), None)
    assert [data[:at].count(b"\n") for at in hits.offsets] == [lines.index(line) for line in found]


def test_a_search_covers_all_pieces_of_the_file_and_can_be_stopped(
    opened: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "SEARCHED_AT_ONCE", 7_777)
    monkeypatch.setattr(log_file, "AT_ONCE", 13)
    lines = [dated(number) for number in range(3_000)]
    data = "".join(f"{line}\n" for line in lines)
    got = all_hits(opened(lines), "iteration 12")
    assert [data[at : at + 14] for at in got[-1].offsets].count("iteration 12/ ") == 1
    assert list(got[-1].offsets) == [at for at in range(len(data)) if data.startswith("iteration 12", at)]
    begins = [hits.begin for hits in got]
    assert begins == sorted(begins, reverse=True)
    assert len(begins) > 20

    replies, ends = queue.SimpleQueue[LogHits](), queue.SimpleQueue[Callable[[], None]]()

    def first_only(hits: LogHits) -> None:
        ends.get(timeout=60)()
        replies.put(hits)

    ends.put(opened(lines).search("nowhere", first_only))
    assert not replies.get(timeout=60).is_done
    with pytest.raises(queue.Empty):
        replies.get(timeout=0.5)


def test_a_text_of_which_there_is_too_much_is_found_from_the_end_on(
    opened: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "HITS", 50)
    monkeypatch.setattr(log_file, "AT_ONCE", 20)
    hits = all_hits(opened([dated(number) for number in range(3_000)]), "loss")[-1]
    assert 50 <= len(hits.offsets) < 70
    assert hits.is_done
    assert 0 < hits.begin <= hits.offsets[0]


# ---- a moment --------------------------------------------------------------------------------------------------------


def test_a_time_is_found_by_the_times_in_the_lines_whatever_the_steps_are(opened: Make) -> None:
    lines = [dated(number) for number in range(9_000)]
    part = part_of(lambda reply: opened(lines).find(BEGAN + EVERY * 4_321 + 1.0, 12, (), reply))
    assert part.found is not None
    assert part.lines[part.found] == lines[4_321]


def test_a_step_is_found_where_the_lines_show_no_time(opened: Make) -> None:
    lines = [f"iteration {10 * number}/ 900000 | loss: 2.5" for number in range(15_000)]
    part = part_of(lambda reply: opened(lines).find(BEGAN, 123_456, (), reply))
    assert part.found is not None
    assert part.lines[part.found] == "iteration 123460/ 900000 | loss: 2.5"


@HERE
@pytest.mark.parametrize("step", [345, 1_345])
def test_a_step_is_found_before_and_behind_a_long_output_without_steps(opened: Make, step: int) -> None:
    steps, noise = (
        [f"step {number} | loss 2.5" for number in range(2_000)],
        ["loading a shard: ok " + "x" * 150] * 6_000,
    )
    lines = [*noise, *steps[:1_000], *noise, *steps[1_000:]]
    part = part_of(lambda reply: opened(lines).find(BEGAN, step, (), reply))
    assert part.found is not None
    assert part.lines[part.found] == f"step {step} | loss 2.5"


def test_else_the_lines_that_an_alert_keeps_are_searched(opened: Make) -> None:
    lines = [f"something {number}" for number in range(6_000)]
    lines[1_200] = "RuntimeError: boom (rank 3)"
    part = part_of(lambda reply: opened(lines).find(BEGAN, None, ("Traceback of another file", lines[1_200]), reply))
    assert part.found is not None
    assert part.lines[part.found] == lines[1_200]
    nothing = part_of(lambda reply: opened(lines).find(BEGAN, None, (), reply))
    assert nothing.error == "its lines show no times or steps"
