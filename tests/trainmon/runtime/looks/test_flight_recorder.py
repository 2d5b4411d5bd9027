"""Dumps of PyTorch's flight recorder on the disks of nodes: found, read without running them, and judged."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from collectors.probe.gpu.ranks import Ranks
from tests.collectors.probe.interpreters import found
from tests.lab.flight_recorder import Training, dump, play, write
from tests.lab.sshd import until
from tests.lab.torchrun import HANGS, torch_python
from trainmon.lib import CommandFailed, SystemClock
from trainmon.model import (
    Attempt,
    AttemptEnd,
    Leadership,
    Log,
    Node,
    Progress,
    RankLook,
    RankMap,
    RankProcess,
    RankProcesses,
    Run,
    RunSpec,
    State,
)
from trainmon.runtime.looks import Nodes
from trainmon.runtime.looks.flight_recorder import DumpReader, FlightRecorder
from trainmon.runtime.looks.nodes import Request, code
from trainmon.runtime.looks.on_node.flight_recorder import read
from trainmon.runtime.looks.on_node.run import BEGIN
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, Shell

CACHE = ".cache/torch"
NAME = "comm_lib_trace_rank_"


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    one = EventLoop()
    one.start()
    yield one
    one.stop()


class Cluster:
    """Nodes of which each has a home of its own, or all the same. Four ranks run on each."""

    def __init__(self, loop: EventLoop, folder: Path, *, nodes: int = 4, shared: bool = False) -> None:
        self.homes = {f"n{node}": folder / ("home" if shared else f"n{node}") for node in range(nodes)}
        self.shells: dict[str, Shell] = {
            name: LocalShell(loop, host=name, env={"HOME": str(home)}) for name, home in self.homes.items()
        }
        ranks = {name: {4 * node + gpu: (gpu,) for gpu in range(4)} for node, name in enumerate(self.homes)}
        self.attempt = Attempt(
            attempt_id="prod/88", run_id="llm", cluster="prod", nodes=(*self.homes,), started_at=time.time() - 3_600.0,
            ranks=RankMap(launcher="torchrun", ranks=4 * nodes, nodes=ranks),
        )  # fmt: skip
        self.run = Run(spec=RunSpec(name="llm", cluster="prod"), progress=Progress(step=7))
        self.nodes: dict[str, Node] = {}
        self.down: set[str] = set()
        self.others: dict[str, Attempt] = {}
        self.recorder = FlightRecorder()

    def shell_of(self, host: str) -> Shell:
        if host in self.down:
            raise CommandFailed(f"{host} is down")
        return self.shells[host]

    def look(self) -> RankLook:
        names = ["llm", *(one.run_id for one in self.others.values())]
        runs = {name: replace(self.run, spec=RunSpec(name=name, cluster="prod")) for name in names}
        state = State(attempts={"prod/88": self.attempt, **self.others}, runs=runs, nodes=self.nodes)
        nodes = Nodes(self.shell_of, lambda host: sys.executable)
        return self.recorder.look(Request(state, self.run, nodes, SystemClock(), lambda said: None, lambda: state))

    def write(self, training: Training) -> None:
        """What each rank writes on its own node."""
        for rank in training.entries:
            home = [*self.homes.values()][rank // 4]
            (home / CACHE).mkdir(parents=True, exist_ok=True)
            (home / CACHE / f"{NAME}{rank}").write_bytes(dump(training, rank))


def test_the_dumps_of_all_nodes_name_the_rank(loop: EventLoop, tmp_path: Path) -> None:
    cluster = Cluster(loop, tmp_path)
    cluster.write(play(3, "sleeps", now=time.time()))
    look = cluster.look()
    assert look.summary.startswith("rank 7 (n1 GPU 3) never entered ALLREDUCE 9 of group tp (ranks 4-7); 3 ranks wait")
    assert (look.ranks, look.count, look.step) == ((7,), 9, 7)
    assert not any("no dump" in line for line in look.lines)


def test_on_a_shared_home_each_file_counts_once(loop: EventLoop, tmp_path: Path) -> None:
    cluster = Cluster(loop, tmp_path, shared=True)
    write(play(3, "sleeps", now=time.time()), tmp_path / "home" / CACHE, NAME)
    assert cluster.look().ranks == (7,)
    cluster.attempt = replace(cluster.attempt, ranks=None)
    skews = {
        name: Node(name=name, cluster="prod", clock_skew_s=0.1 * number) for number, name in enumerate(cluster.homes)
    }
    cluster.nodes, cluster.recorder = skews, FlightRecorder()
    assert cluster.look().summary.startswith("rank 7 never entered ALLREDUCE 9 of group tp")


def test_two_dumps_of_one_rank_are_told_apart_by_the_nodes_of_the_ranks(loop: EventLoop, tmp_path: Path) -> None:
    """Another job of the same user has left one on another node."""
    cluster, now = Cluster(loop, tmp_path), time.time()
    cluster.write(play(3, "sleeps", now=now))
    (cluster.homes["n0"] / CACHE / f"{NAME}7").write_bytes(dump(play(3, "fabric", now=now), 7))
    assert cluster.look().ranks == (7,)
    cluster.attempt, cluster.recorder = replace(cluster.attempt, ranks=None), FlightRecorder()
    look = cluster.look()
    assert look.ranks == ()
    assert "no dump of rank 7: two nodes have different ones" in look.lines


def test_what_was_read_once_counts_when_a_node_has_been_cleaned_up(loop: EventLoop, tmp_path: Path) -> None:
    cluster, training = Cluster(loop, tmp_path), play(3, "sleeps", now=time.time())
    cluster.write(training)
    (cluster.homes["n3"] / CACHE / f"{NAME}12").unlink()
    assert len([line for line in cluster.look().lines if "no dump of rank 12" in line]) == 1
    (cluster.homes["n3"] / CACHE / f"{NAME}12").write_bytes(dump(training, 12))
    shutil.rmtree(cluster.homes["n1"])
    cluster.down.add("n2")
    look = cluster.look()
    assert look.ranks == (7,)
    assert not any("no dump" in line for line in look.lines)
    cluster.run = replace(cluster.run, progress=Progress(step=8, at=time.time() + 60.0))  # it goes on
    assert refused(cluster).startswith("no rank of llm has a dump")


def refused(cluster: Cluster) -> str:
    with pytest.raises(CommandFailed) as caught:
        cluster.look()
    return caught.value.message


def test_dumps_of_another_job_are_not_used(loop: EventLoop, tmp_path: Path) -> None:
    cluster, training = Cluster(loop, tmp_path), play(3, "sleeps", now=time.time())
    cluster.write(training)
    cluster.attempt = replace(cluster.attempt, started_at=time.time() + 60.0)
    assert refused(cluster) == "no rank of llm has a dump of PyTorch's flight recorder: it was written before"
    cluster.attempt = replace(cluster.attempt, started_at=time.time() - 300.0)  # written again, by a copy
    assert refused(cluster).endswith(": it is of another attempt")


def test_the_clock_of_a_node_may_be_wrong(loop: EventLoop, tmp_path: Path) -> None:
    cluster = Cluster(loop, tmp_path)
    cluster.write(play(3, "sleeps", now=time.time() + 7_200.0))
    for home in cluster.homes.values():
        for file in (home / CACHE).iterdir():
            os.utime(file, (time.time() + 7_200.0,) * 2)
    cluster.nodes = {name: Node(name=name, cluster="prod", clock_skew_s=7_200.0) for name in cluster.homes}
    assert cluster.look().since == pytest.approx(time.time() - 600.0, abs=60.0)


def test_ranks_without_a_dump_are_said_with_the_reason(loop: EventLoop, tmp_path: Path) -> None:
    cluster = Cluster(loop, tmp_path)
    cluster.write(play(3, "sleeps", now=time.time()))
    (cluster.homes["n0"] / CACHE / f"{NAME}2").unlink()
    cluster.down.add("n3")
    look = cluster.look()
    assert look.ranks == (7,)
    assert "no dump of rank 2 (n0 GPU 2): it has written none" in look.lines
    assert "no dump of ranks 12-15 (n3 GPU 0, 1, 2, 3): n3 is down" in look.lines
    cluster.down.update(cluster.homes)
    cluster.recorder = FlightRecorder()
    assert refused(cluster).endswith(" is down")


def test_the_environment_of_a_rank_says_where_also_when_it_has_ended(loop: EventLoop, tmp_path: Path) -> None:
    cluster = Cluster(loop, tmp_path, nodes=1)
    training = play(3, "sleeps", ranks=4, tensor=2, now=time.time())
    environment = {"TORCH_FR_DUMP_TEMP_FILE": "traces/rank", "SECRET": "s3cret", "PATH": os.environ["PATH"]}
    process = subprocess.Popen(["sleep", "60"], cwd=tmp_path, env=environment)
    try:
        started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        row = RankProcess(pid=process.pid, started_s=started / os.sysconf("SC_CLK_TCK"), workers=(),
                          launcher="torchrun", rank=0, ranks=4)  # fmt: skip
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        cluster.nodes = {
            "n0": Node(name="n0", cluster="prod", boot_time=boot, ranks=RankProcesses(v=1, t=0.0, r=(row,), user="ana"))
        }
        assert refused(cluster) == "no rank of llm has a dump of PyTorch's flight recorder"
    finally:
        process.kill()
        process.wait()
    write(training, tmp_path / "traces", "rank")
    assert cluster.look().ranks == (training.culprit,)


def test_on_a_shared_home_the_dumps_of_another_run_are_not_taken_for_ours(loop: EventLoop, tmp_path: Path) -> None:
    """Both make no steps, as the network is broken, and PyTorch writes both their dumps to the same files."""
    cluster = Cluster(loop, tmp_path, shared=True)
    write(play(3, "sleeps", now=time.time()), tmp_path / "home" / CACHE, NAME)
    cluster.others = {"prod/89": replace(cluster.attempt, attempt_id="prod/89", run_id="vlm", nodes=("n9",))}
    assert refused(cluster).endswith(": vlm may have written it: set TORCH_FR_DUMP_TEMP_FILE for each run")


def test_dumps_of_processes_that_were_restarted_within_the_job_are_not_used(loop: EventLoop, tmp_path: Path) -> None:
    cluster = Cluster(loop, tmp_path, nodes=1)
    cluster.write(play(3, "sleeps", ranks=4, tensor=2, now=time.time()))
    rows = tuple(
        RankProcess(pid=2**22 + rank, started_s=60.0, workers=(), launcher="torchrun", rank=rank, ranks=4)
        for rank in range(4)
    )
    ranks = RankProcesses(v=1, t=0.0, r=rows, user="ana")
    cluster.nodes = {"n0": Node(name="n0", cluster="prod", boot_time=time.time(), ranks=ranks)}
    assert refused(cluster).endswith(": it was written before")


# ---- when they are read without being asked for ----------------------------------------------------------------------


class Program:
    """A program that watches one run. Each second is a State."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, str, tuple[str, ...]]] = []
        self.reader = DumpReader(lambda run, reply, sources: self.asked.append((self.state.at, run, tuple(sources))))
        self.state = State(
            leadership=Leadership(holder="us"),
            attempts={"a": Attempt(attempt_id="a", run_id="llm", cluster="prod", started_at=1.0)},
            runs={"llm": Run(spec=RunSpec(name="llm", cluster="prod"), verdict="healthy")},
        )

    def watch(self, until: float, **changes: Any) -> list[float]:
        """When it asks."""
        self.asked.clear()
        self.state = replace(self.state, **changes)
        while self.state.at < until:
            self.state = replace(self.state, at=self.state.at + 1.0)
            self.reader.observe(self.state)
        assert {each[1:] for each in self.asked} <= {("llm", ("flight-recorder",))}
        return [at for at, *_ in self.asked]


def test_dumps_are_read_when_a_run_times_out_and_ends_until_there_is_an_answer() -> None:
    program = Program()
    assert program.watch(100.0) == []
    run = program.state.runs["llm"]
    lines = ("step 7", "[rank3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)")
    told = replace(run, log=Log(host="n0", lines=lines))
    assert program.watch(130.0, runs={"llm": told}) == [101.0, 121.0]
    attempt, look = program.state.attempts["a"], RankLook(source="flight-recorder", at=122.0, summary="rank 3 …")
    assert program.watch(400.0, attempts={"a": replace(attempt, looks=(look,))}) == []
    end = AttemptEnd(at=395.0, source="queue", noticed_at=400.0, scheduler_state="FAILED", exit_code=1)
    ended = replace(attempt, looks=(look,), reported_end=end)
    assert program.watch(405.0, attempts={"a": ended}) == [401.0], "the rest of the dumps may have come"
    assert program.watch(1_000.0) == [421.0, 441.0]


def test_no_node_is_asked_for_dumps_of_a_run_that_is_well_or_that_another_program_watches() -> None:
    program = Program()
    attempt, end = program.state.attempts["a"], AttemptEnd(at=5.0, source="queue", noticed_at=5.0, exit_code=0)
    assert program.watch(50.0, attempts={"a": replace(attempt, reported_end=end)}) == []
    late = replace(end, exit_code=1, noticed_at=-1_000.0)
    assert program.watch(100.0, attempts={"a": replace(attempt, end=late)}) == []
    failed = replace(attempt, reported_end=replace(late, noticed_at=101.0))
    assert program.watch(120.0, attempts={"a": failed}, leadership=Leadership(holder="other")) == []
    assert program.watch(130.0, leadership=Leadership(holder="us")) == [121.0]


def test_what_was_asked_for_is_forgotten_with_the_attempt() -> None:
    program = Program()
    attempt = replace(program.state.attempts["a"], reported_end=AttemptEnd(at=5.0, source="queue", noticed_at=5.0))
    for number in range(9):
        program.watch(program.state.at + 3.0, attempts={str(number): replace(attempt, attempt_id=str(number))})
    assert [*program.reader._tried] == [("8", True)]


def ranks_in(folder: Path) -> RankProcesses:
    """The ranks that the probe finds which have this working directory."""
    (line,) = Ranks({}).read()
    found = msgspec.convert({**line, "v": 1, "t": 0.0}, RankProcesses)
    return replace(found, r=tuple(one for one in found.r if Path(f"/proc/{one.pid}/cwd").resolve() == folder))


@pytest.mark.slow  # PyTorch is a download of many hundred megabytes
@pytest.mark.parametrize(
    ("fault", "ranks", "summary"),
    [
        ("sleeps", (2,), "rank 2 (n0) never entered ALLREDUCE 6 of group default_pg; 3 ranks wait in it since "),
        (
            "disagrees",
            (),
            "ranks disagree about 6 of group default_pg: 3 call ALLREDUCE, 1 call ALLGATHER: rank 2 (n0)",
        ),
    ],
)
def test_four_ranks_of_torch_that_hang_are_read_where_their_environment_says(
    loop: EventLoop, tmp_path: Path, fault: str, ranks: tuple[int, ...], summary: str
) -> None:
    cluster, script = Cluster(loop, tmp_path, nodes=1), tmp_path / "train.py"
    script.write_text(HANGS)
    (tmp_path / "traces").mkdir()
    argv = [
        str(torch_python()),
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=4",
        str(script),
        fault,
    ]
    environment = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": "traces/rank", "OMP_NUM_THREADS": "1"}
    nowhere = subprocess.DEVNULL
    with subprocess.Popen([*argv, "60"], cwd=tmp_path, env=environment, stdout=nowhere, stderr=nowhere) as run:
        try:
            until(lambda: len([*(tmp_path / "traces").glob("rank?")]) == 4, "all dumps are there", 120.0)
            until(lambda: len(ranks_in(tmp_path).r) == 4, "the probe counts them", 60.0)
            nodes = {"n0": dict.fromkeys(range(4), ())}
            cluster.attempt = replace(cluster.attempt, ranks=RankMap(launcher="torchrun", ranks=4, nodes=nodes))
            boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            cluster.nodes = {"n0": Node(name="n0", cluster="prod", boot_time=boot, ranks=ranks_in(tmp_path))}
            look = cluster.look()
        finally:
            run.terminate()
    assert look.ranks == ranks
    assert look.summary.startswith(summary)
    assert cluster.look().summary == look.summary, "also when they have ended"


# ---- files that are no dumps, or hostile -----------------------------------------------------------------------------


class Runs:
    """Runs a command when it is read by `pickle.load`."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def ask(
    folder: Path, seconds: float = 10.0, python: str = sys.executable, home: Path = Path("/nowhere")
) -> dict[str, Any]:
    """What the script says of the dumps in a folder."""
    asked = {"pids": [], "ranks": None, "paths": [f"{folder}/rank"], "since": 0.0, "ahead": 0.0, "seconds": seconds}
    argv = [python, "-I", "-S", "-B", "-", json.dumps(asked), "60"]
    done = subprocess.run(argv, input=code("flight_recorder"), env={"HOME": str(home)}, capture_output=True,
                          timeout=70, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    told, _ = json.loads(zlib.decompress(done.stdout.partition(BEGIN)[2]))
    return {
        "dumps": {rank: one for rank, one in told.items() if isinstance(one, list)},
        "bad": {rank: one for rank, one in told.items() if not isinstance(one, list)},
    }


def aged(file: Path) -> None:
    """Written a minute ago: nobody waits for the rest of it."""
    os.utime(file, (time.time() - 60.0,) * 2, follow_symlinks=False)


HOSTILE = {
    "a memo of 16 GiB": b"\x80\x02]r\xff\xff\xff\x7f.",
    "two GiB of lists": pickle.dumps({"version": "2.10", "entries": []}, 2)[:-1] + b"]" * 20_000_000 + b".",
    "another shape": pickle.dumps(["entries"], 2),
    "no number": pickle.dumps({"version": "2.10", "entries": [{"profiling_name": "nccl:x", "process_group": ("0", ""),
                           "state": "", "input_sizes": [], "collective_seq_id": 1,
                           "time_created_ns": float("nan")}]}, 2),
    "no pickle": b"hello",
}  # fmt: skip


def test_a_hostile_dump_costs_itself_and_one_sentence(tmp_path: Path) -> None:
    whole, marker = dump(play(3, "sleeps", ranks=4, tensor=2), 1), tmp_path / "has-run"
    files = {1: whole, 2: pickle.dumps(Runs(f"touch {marker}"), 2), 3: whole[: len(whole) // 2]}
    files |= {10 + index: text for index, text in enumerate(HOSTILE.values())}
    for rank, text in files.items():
        (tmp_path / f"rank{rank}").write_bytes(text)
        aged(tmp_path / f"rank{rank}")
    (tmp_path / "rank30").symlink_to(tmp_path / "rank1")
    os.mkfifo(tmp_path / "rank31")
    (tmp_path / "rank32").mkdir()
    with (tmp_path / "rank33").open("wb") as large:
        large.truncate(64 * 1024 * 1024)
    (tmp_path / "rank34extra").write_bytes(whole)
    answer = ask(tmp_path)
    assert [*answer["dumps"]] == ["1"]
    assert not marker.exists()
    assert answer["bad"] == {
        "2": "it cannot be read: UnpicklingError it names posix.system",
        "3": "it cannot be read: UnpicklingError pickle data was truncated",
        **dict.fromkeys(("10", "11"), "reading it took too much memory or time"),
        "12": "it cannot be read: AttributeError 'list' object has no attribute 'get'",
        "13": "it cannot be read: ValueError cannot convert float NaN to integer",
        "14": answer["bad"]["14"],  # each Python has words of its own
        "30": "Too many levels of symbolic links",
        **dict.fromkeys(("31", "33"), "it is of another user, too large, or no file"),
        "32": "Is a directory",
    }


@pytest.mark.slow
def test_a_dump_that_takes_for_ever_to_read_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "rank1").write_bytes(b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 64 + b"}h\x00Ns.")
    aged(tmp_path / "rank1")
    assert ask(tmp_path)["bad"] == {"1": "reading it took too much memory or time"}


def test_a_dump_that_is_being_written_is_awaited(tmp_path: Path) -> None:
    whole, file = dump(play(3, "sleeps", ranks=4, tensor=2), 1), tmp_path / "rank1"
    asked = {"since": 0.0, "ahead": 0.0}
    file.write_bytes(whole[:1_000])
    assert read([str(file)], asked, {os.getuid()}) is None
    assert ask(tmp_path, seconds=0.1)["bad"] == {"1": None}
    with file.open("ab") as opened:
        opened.write(whole[1_000:])
    assert read([str(file)], asked, {os.getuid()})[1] == str(file)


@pytest.mark.parametrize("version", sorted(found()))
def test_each_python_of_a_node_reads_dumps(version: str, tmp_path: Path) -> None:
    write(play(3, "sleeps", ranks=4, tensor=2), tmp_path, "rank")
    assert [*ask(tmp_path, python=found()[version])["dumps"]] == ["0", "1", "2", "3"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a file of another user")
def test_a_dump_of_another_user_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "rank1").write_bytes(dump(play(3, "sleeps", ranks=4, tensor=2), 1))
    os.chown(tmp_path / "rank1", 65_534, 65_534)
    assert ask(tmp_path)["bad"] == {"1": "it is of another user, too large, or no file"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a file of another user")
def test_a_newer_dump_of_another_user_does_not_hide_ours(tmp_path: Path) -> None:
    """A directory that all may write to, and one of ours."""
    home, ours, other = tmp_path / "home", tmp_path / "home" / CACHE, tmp_path / "rank1"
    ours.mkdir(parents=True)
    for file in (ours / f"{NAME}1", other):
        file.write_bytes(dump(play(3, "sleeps", ranks=4, tensor=2), 1))
    aged(ours / f"{NAME}1")
    os.chown(other, 65_534, 65_534)
    assert ask(tmp_path, home=home)["dumps"]["1"][1] == str(ours / f"{NAME}1")


def test_8_ranks_of_2000_entries_are_a_few_kilobytes_on_the_wire(tmp_path: Path) -> None:
    training = play(3, "sleeps", ranks=8, tensor=4)
    for rank, entries in training.entries.items():
        late = [{**one, "record_id": index} for index, one in enumerate(entries * (2_000 // len(entries)))]
        (tmp_path / f"rank{rank}").write_bytes(dump(training._replace(entries={rank: late}), rank))
    answer = ask(tmp_path)
    assert len(answer["dumps"]) == 8
    assert len(zlib.compress(json.dumps(answer).encode())) < 4_000
