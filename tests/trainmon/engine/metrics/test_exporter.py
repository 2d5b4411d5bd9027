"""/metrics and the textfile: what a scraper gets, and that nothing that goes wrong with them ends the daemon."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from tests.lab.daemons import until
from tests.lab.slurm_config import ports
from tests.trainmon.engine.metrics.scraped import values
from trainmon.engine.metrics.exporter import AT_ONCE, Exporter, Server
from trainmon.lib import SystemClock
from trainmon.model import Progress, Run, RunSpec, State

STATE = State(runs={"llm": Run(spec=RunSpec(name="llm", cluster="prod"), progress=Progress(step=7), verdict="hung")})


@pytest.fixture
def port() -> int:
    (found,) = ports(1)
    return found


@contextmanager
def exporting(port: int | None = None, textfile: Path | None = None, every: float = 0.05) -> Iterator[Exporter]:
    address = None if port is None else ("127.0.0.1", port)
    exporter = Exporter(address, textfile, None, SystemClock(), every=every)
    exporter.observe(STATE)
    exporter.start()
    try:
        yield exporter
    finally:
        exporter.stop()


def get(port: int, path: str = "/metrics", *, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read().decode()


def is_served(port: int) -> bool:
    try:
        return get(port)[0].status == 200
    except OSError:
        return False


def step(page: str) -> float:
    return values(page, "trainmon_run_step", "run")["llm",]


def test_a_scraper_gets_the_text_format_and_openmetrics_if_it_asks_for_it(port: int) -> None:
    with exporting(port):
        until(lambda: is_served(port), "the metrics are served")
        response, page = get(port)
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert step(page) == 7
        response, page = get(port, Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        assert page.endswith("# EOF\n")
        assert "trainmon_run_step" in {family.name for family in openmetrics(page)}


def test_it_shows_the_newest_state_and_no_other_page(port: int) -> None:
    with exporting(port) as exporter:
        until(lambda: is_served(port), "the metrics are served")
        exporter.observe(State())
        assert "trainmon_run_step{" not in get(port)[1]
        response, page = get(port, "/")
        assert (response.status, page) == (404, "the metrics are at /metrics\n")
        page = get(port)[1]
        response, nothing = get(port, method="HEAD")
        assert (response.status, response.headers["Content-Length"], nothing) == (200, str(len(page)), "")


def test_a_port_in_use_is_one_sentence_and_is_tried_again(port: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="trainmon.engine.metrics")
    sentence = (
        f"the metrics cannot be served: port {port} of 127.0.0.1: address already in use; this is tried again every 0s"
    )
    with socket.create_server(("127.0.0.1", port)) as other, exporting(port):
        until(lambda: sentence in caplog.messages, "it is said")
        other.close()
        until(lambda: is_served(port), "the metrics are served")
        until(lambda: caplog.messages == [sentence, "no longer: the metrics cannot be served"], "its end is said")


def test_the_port_is_free_when_it_has_stopped(port: int) -> None:
    for _ in range(2):
        with exporting(port):
            until(lambda: is_served(port), "the metrics are served")


def is_hung_up_on(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def test_a_client_that_sends_nothing_is_hung_up_on() -> None:
    server = Server(("127.0.0.1", 0), lambda _: (b"", "text/plain"), within=0.2)
    with serving(server) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert is_hung_up_on(client)


def connected(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # an answer that is not read fills no memory
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    return client


@pytest.mark.parametrize("words", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n"])
def test_slow_clients_do_not_lock_a_scraper_out(words: bytes) -> None:
    server = Server(("127.0.0.1", 0), lambda _: (b"well", "text/plain"), within=600.0)
    with serving(server) as port, ExitStack() as stack:
        slow = [stack.enter_context(connected(port)) for _ in range(AT_ONCE + 16)]
        for client in slow:
            with suppress(ConnectionError):
                client.sendall(words)
        for _ in range(3):
            assert get(port)[1] == "well"
        assert is_hung_up_on(slow[0])


def test_clients_that_do_not_read_the_answer_do_not_lock_a_scraper_out() -> None:
    pages = iter([b"x" * 20_000_000] * (AT_ONCE + 1))
    server = Server(("127.0.0.1", 0), lambda _: (next(pages, b"well"), "text/plain"), within=600.0)
    with serving(server) as port, ExitStack() as stack:
        for _ in range(AT_ONCE + 1):
            client = stack.enter_context(connected(port))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert client.recv(1), "its answer has begun"
        assert get(port)[1] == "well"


def test_an_answer_is_not_cut_by_clients_that_connect_again_and_again() -> None:
    begun, proceed = threading.Event(), threading.Event()

    def render(_: str) -> tuple[bytes, str]:
        begun.set()
        proceed.wait(60)
        return b"x" * 5_000_000, "text/plain"

    with serving(Server(("127.0.0.1", 0), render, within=600.0)) as port, ExitStack() as stack:
        scraper = stack.enter_context(connected(port))
        scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert begun.wait(60)
        others = [stack.enter_context(connected(port)) for _ in range(AT_ONCE)]
        assert is_hung_up_on(others[0]), "not the scraper, while the metrics are made"
        proceed.set()
        with scraper.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.0 200 OK\r\n"
            others += [stack.enter_context(connected(port)) for _ in range(AT_ONCE)]
            assert is_hung_up_on(others[AT_ONCE]), "not the scraper, while it reads"
            assert answer.read().endswith(b"\r\n\r\n" + b"x" * 5_000_000)


def test_while_the_metrics_are_made_for_as_many_clients_as_allowed_a_further_one_gets_them_too() -> None:
    begun, proceed = threading.Semaphore(0), threading.Event()

    def render(_: str) -> tuple[bytes, str]:
        begun.release()
        proceed.wait(60)
        return b"well", "text/plain"

    with serving(Server(("127.0.0.1", 0), render, within=600.0)) as port, ExitStack() as stack:
        clients = [stack.enter_context(connected(port)) for _ in range(AT_ONCE + 1)]
        for client in clients:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        for _ in clients:
            assert begun.acquire(timeout=60)
        proceed.set()
        with clients[-1].makefile("rb") as answer:
            assert answer.read().endswith(b"well")


TYPES = (
    "application/openmetrics-text",
    "text/plain",
    "application/vnd.google.protobuf",
    "*/*",
    "",
    "\xe9",
    "x" * 9_000,
)
VERSIONS = (
    "", "9", "9.0.0", "1.0.0", "0.0.1", "2.0.0", "1", "1.0", "1.0.0.0", "-1", "a.b", "1.x", '"1.0.0"', "1_0.0.0",
    " 1.0.0", "1e9", "9" * 5_000, "1.0.0;version=9", "1.0.0 ;escaping=allow-utf-8", "1.0.0;escaping=dots", "9;q=0.5",
    "1.0.0;=;;==",
)  # fmt: skip
TAILS = ("", ";version", ";escaping=nonsense", *(f";version={version}" for version in VERSIONS))


def test_any_header_accept_gets_a_page(port: int) -> None:
    with exporting(port):
        until(lambda: is_served(port), "the metrics are served")
        for accept in (kind + tail + more for kind in TYPES for tail in TAILS for more in ("", ",*/*;q=0.1")):
            response, page = get(port, Accept=accept)
            assert (response.status, "llm" in page) == (200, True), accept
            assert response.headers["Content-Type"].startswith(
                ("text/plain; version=", "application/openmetrics-text; v")
            )


def test_metrics_that_cannot_be_made_are_an_error_500_and_the_next_request_is_served() -> None:
    def render(accept: str) -> tuple[bytes, str]:
        if accept == "bad":
            raise ValueError(accept)
        return b"well", "text/plain"

    with serving(Server(("127.0.0.1", 0), render)) as port:
        response, page = get(port, Accept="bad")
        assert (response.status, page) == (
            500, "the metrics could not be computed; the log of the daemon says why\n",
        )  # fmt: skip
        assert get(port)[1] == "well"


@contextmanager
def serving(server: Server) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.close()
        thread.join(60)


def test_the_textfile_is_renewed_and_removed_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "trainmon.prom"
    with exporting(textfile=file) as exporter:
        until(file.exists, "it is written")
        assert step(file.read_text()) == 7
        assert file.stat().st_mode & 0o777 == 0o644, "node_exporter runs as another user"
        exporter.observe(State())
        until(lambda: "trainmon_run_step{" not in file.read_text(), "it is renewed")
    until(lambda: list(tmp_path.iterdir()) == [], "it is removed")


def test_a_textfile_that_the_next_program_has_written_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "trainmon.prom"
    with exporting(textfile=file, every=600.0):
        until(file.exists, "it is written")
        (tmp_path / "next").write_text("of the next program")
        (tmp_path / "next").replace(file)
    assert file.read_text() == "of the next program"


def test_a_textfile_that_cannot_be_written_is_one_sentence_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="trainmon.engine.metrics")
    file = tmp_path / "later" / "trainmon.prom"
    with exporting(textfile=file):
        until(lambda: caplog.messages, "it is said")
        file.parent.mkdir()
        until(file.exists, "it is written")
        expected = [
            f"the textfile cannot be written: {file}: no such file or directory; this is tried again every 0s",
            "no longer: the textfile cannot be written",
        ]
        until(lambda: caplog.messages == expected, "its end is said")
