"""Requests that end in time, and what answers mean."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.lab.receiver import HANG, Answer, status
from tests.lab.webhook_receiver import WebhookReceiver
from trainmon.alerting.notify.channels.http import RETRY_AFTER_AT_MOST, Http, host_of, judge
from trainmon.alerting.notify.message import Broken, Retry
from trainmon.lib.threads import MAX_ABANDONED, DeadlineExceeded, DeadlineRunner


class Still:
    """A clock that stands."""

    def now(self) -> float:
        return 1_800_000_000.0

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver.start() as running:
        yield running


@pytest.mark.parametrize(
    ("header", "after"),
    [
        ("120", 120.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        ("Fri, 15 Jan 2027 08:02:00 GMT", 120.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        ("999999999", RETRY_AFTER_AT_MOST),
        ("soon", None),
        ("nan", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(receiver: WebhookReceiver, header: str | None, after: float | None) -> None:
    receiver.script(status(429, retry_after=header))
    assert Http("x", Still()).request("POST", receiver.url, headers={}, timeout=60).retry_after == after


def test_an_answer_of_any_length_is_read_to_a_bound(receiver: WebhookReceiver) -> None:
    receiver.script(Answer("status", 200, b"x" * 1_000_000))
    assert len(Http("x").request("POST", receiver.url, headers={}, timeout=60).body) == 65_536


def test_a_server_that_trickles_is_left_in_time() -> None:
    """Each byte is in time for the socket; the request is not."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def trickle() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not over.wait(0.05):
                connection.sendall(b"x")

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    http = Http("x")
    try:
        with pytest.raises(Retry, match="no answer within"):
            http.request("POST", f"http://127.0.0.1:{listening.getsockname()[1]}/", headers={}, timeout=0.5)
    finally:
        over.set()
        thread.join(10)
        listening.close()
    until_all_ended(http)


def until_all_ended(http: Http) -> None:
    for thread in http._deadline_runner._abandoned:
        thread.join(10)


def test_a_proxy_of_the_environment_is_used(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", receiver.url.replace("//", "//ann:hunter2@"))
    monkeypatch.setenv("no_proxy", "else.where")
    reply = Http("x").request("POST", "http://hooks.test/x", headers={}, timeout=60)
    assert reply.is_good
    (request,) = receiver.requests
    assert (request.path, request.headers["host"]) == ("http://hooks.test/x", "hooks.test")
    assert request.headers["proxy-authorization"] == "Basic YW5uOmh1bnRlcjI="


def test_an_address_that_is_none_is_broken() -> None:
    with pytest.raises((Broken, Retry)) as caught:
        Http("x").request("POST", "http://[::1/hunter2", headers={}, timeout=60)
    assert "hunter2" not in str(caught.value)


def test_a_name_that_is_not_known_is_for_now_only() -> None:
    with pytest.raises(Retry) as caught:
        Http("x").request("POST", "http://hunter2.invalid/", headers={}, timeout=60)
    assert "hunter2" not in str(caught.value)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of localhost's own, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, *form) + signed.public_bytes(serialization.Encoding.PEM)
    (tmp_path / "certificate.pem").write_bytes(text)
    return tmp_path / "certificate.pem"


def test_a_certificate_must_be_trusted_here(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with WebhookReceiver.start() as receiver:
        receiver._http.socket = context.wrap_socket(receiver._http.socket, server_side=True)
        url = f"https://localhost:{receiver.port}/hunter2"
        with pytest.raises(Broken) as caught:
            Http("x").request("POST", url, headers={}, timeout=60)
        assert caught.value.message.startswith("its certificate is not trusted here")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert Http("x").request("POST", url, headers={}, timeout=60).is_good
        receiver.failures.clear()


def test_only_2xx_is_taken(receiver: WebhookReceiver) -> None:
    for code, error in ((204, None), (302, Broken), (400, Broken), (410, Broken), (425, Retry), (502, Retry)):
        receiver.script(Answer("status", code))
        reply = Http("x").request("POST", receiver.url, headers={}, timeout=60)
        if error is None:
            judge(reply)
        else:
            with pytest.raises(error):
                judge(reply)


def test_of_an_address_only_its_host_is_shown() -> None:
    assert host_of("https://u:hunter2@hooks.test:8443/hunter2?t=hunter2") == "hooks.test:8443"
    assert host_of("http://[bad") == "?"


# ---- the time box


def test_what_a_call_returns_or_raises_comes_through() -> None:
    box: DeadlineRunner[int] = DeadlineRunner("x")
    assert box.call(lambda: 7, 10) == 7
    with pytest.raises(ZeroDivisionError):
        box.call(lambda: 1 // 0, 10)


def test_calls_that_hang_are_left_behind_and_counted() -> None:
    box: DeadlineRunner[bool] = DeadlineRunner("x")
    over, began = threading.Event(), []

    def hang() -> bool:
        began.append(1)
        return over.wait(60)

    for _ in range(MAX_ABANDONED + 3):
        with pytest.raises(DeadlineExceeded):
            box.call(hang, 0.02)
    assert len(began) == MAX_ABANDONED, "no more are begun while so many hang"
    over.set()
    for thread in box._abandoned:
        thread.join(10)
    assert box.call(lambda: True, 10), "and when they have ended it goes on"


def test_a_request_that_hung_leaves_the_next_alone(receiver: WebhookReceiver) -> None:
    http = Http("x")
    receiver.script(HANG)
    with pytest.raises(Retry):
        http.request("POST", receiver.url, headers={}, timeout=0.2)
    assert http.request("POST", receiver.url, headers={}, timeout=60).is_good
