"""How a server is asked: one query a round, and what seldom changes seldom."""

from __future__ import annotations

from collectors.prometheus.query import Series
from collectors.prometheus.reader import CPUS_EVERY, MetricsReader, QueryFailed
from trainmon.config import MetricsSettings


class Server:
    """One sample of the load of each node, now; and their CPUs, unless it refuses to count them."""

    clock_offset = 0.0
    gap = ""

    def __init__(self, *nodes: str) -> None:
        self.nodes, self.at, self.refuses = nodes, 1_000.0, False
        self.asked: list[str] = []
        self.takes = 0.0
        """How much later it is each time that somebody asks."""

    def now(self) -> float:
        self.at += self.takes
        return self.at

    def query(self, text: str) -> tuple[Series, ...]:
        is_count = text.startswith("count by")
        self.asked += ["cpus"] if is_count else []
        if is_count and self.refuses:
            raise QueryFailed("too many series")
        if is_count:
            return tuple(Series({"instance": f"{node}:9100"}, value=(self.at, "128")) for node in self.nodes)
        labels = {"__name__": "node_load1"}
        return tuple(Series({**labels, "instance": f"{node}:9100"}, ((self.at, "3"),)) for node in self.nodes)

    def query_range(self, text: str, start: float, end: float, step: float) -> tuple[Series, ...]:
        raise AssertionError("no plot is read")


def test_the_cpus_of_a_node_are_counted_once_an_hour() -> None:
    server = Server("a", "b")
    reader = MetricsReader(MetricsSettings(url="http://x", exporter="node"), server, server.now)
    for _ in range(5):
        server.at += 15.0
        reader.read(["a", "b"])
    assert (reader.cpus, server.asked) == ({"a": 128, "b": 128}, ["cpus"])
    assert "number of CPUs" not in reader.lacking
    server.nodes = ("a", "b", "c")
    reader.read(["a", "b", "c"])
    assert (reader.cpus["c"], len(server.asked)) == (128, 2), "a new node is asked about at once"
    server.at += CPUS_EVERY + 1
    reader.read(["a", "b", "c"])
    assert len(server.asked) == 3


def test_a_server_that_counts_no_cpus_costs_no_other_number() -> None:
    server = Server("a")
    server.refuses = True
    reader = MetricsReader(MetricsSettings(url="http://x", exporter="node"), server, server.now)
    assert [*reader.read(["a"])] == ["a"]
    assert (reader.cpus, "number of CPUs" in reader.lacking) == ({"a": None}, True)


def test_a_server_that_takes_long_is_said_so() -> None:
    server = Server("a")
    reader = MetricsReader(MetricsSettings(url="http://x", exporter="node"), server, server.now)
    reader.read(["a"])
    assert "took" not in reader.note
    server.takes = 8.0
    reader.read(["a"])
    assert reader.note.startswith("the server took 8s to answer; node_exporter has no ")
