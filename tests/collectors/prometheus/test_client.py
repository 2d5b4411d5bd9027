"""Each way in which a server does not answer is a sentence that says what to do, and never shows the token."""

from __future__ import annotations

import base64
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.prometheus.reader import PrometheusClient, QueryFailed
from tests.collectors.prometheus.captured import FOLDER, series
from tests.lab.prometheus import PASSWORD, USER, Prometheus
from tests.lab.receiver import CUT, Answer, Receiver, status
from trainmon.config import MetricsSettings

TOKEN = "glsa_9f8e7d6c5b4a3210"


def client(url: str, token: str | None = "env:PROM_TOKEN", now: Callable[[], float] = time.time) -> PrometheusClient:
    return PrometheusClient(MetricsSettings(url=url, token=token), now, {"PROM_TOKEN": TOKEN})


def test_a_query_is_a_post_with_the_token_and_its_answer_is_the_series() -> None:
    with Receiver.start() as server:
        server.script(Answer("status", 200, (FOLDER / "dcgm.json").read_bytes()))
        assert client(f"{server.url}/prom").query("up[30s]") == series("dcgm")
        [request] = server.requests
    assert (request.method, request.path) == ("POST", "/prom/api/v1/query")
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert request.headers["accept-encoding"] == "gzip"
    assert urllib.parse.parse_qs(request.body.decode()) == {"query": ["up[30s]"]}


@pytest.mark.parametrize(
    ("answer", "message", "hint"),
    [
        (status(401), "the server refuses the token (401)", 'renew the "token" of its metrics table'),
        (status(403), "the server refuses the token (403)", 'renew the "token" of its metrics table'),
        (
            status(422, {"status": "error", "error": f"too many samples for {TOKEN}"}),
            "the server cannot run the query (422): too many samples for ***",
            'check "match" and "node_label"',
        ),
        (
            status(
                503, {"status": "error", "errorType": "timeout", "error": "query timed out in expression evaluation"}
            ),
            "the server gave up the query (503): query timed out in expression evaluation",
            "see the limits of the server",
        ),
        (
            status(503, {"status": "error", "errorType": "unavailable", "error": "TSDB not ready"}),
            "the server is not available (503): TSDB not ready",
            "check that it is up; it may still be starting",
        ),
        *(
            (
                Answer("status", 503, body),
                f"the server is not available (503){text}",
                "check that it is up; it may still be starting",
            )
            for body, text in (
                (b"", ""),
                (b"Service Unavailable", ""),
                (b"<html>503 Service Temporarily Unavailable", ""),
                (b"no healthy upstream", ": no healthy upstream"),
            )
        ),
        (status(502), "a proxy gets no answer from the server (502)", "is the server behind the proxy up?"),
        (status(504), "a proxy gets no answer from the server (504)", "is the server behind the proxy up?"),
        (status(404), "there is no Prometheus API at its address (404)", 'check "url"'),
        (status(302), "the server redirects to another address (302)", 'correct "url"'),
        (status(200, {"hello": 1}), "its answer is not that of a Prometheus API", 'check "url"'),
        (status(520), "the server answers with an error (520)", "see the log of the server"),
        (status(500), "the server answers with an error (500)", "see the log of the server"),
    ],
)
def test_a_refusal_says_what_to_do(answer: Answer, message: str, hint: str) -> None:
    with Receiver.start() as server:
        server.script(answer)
        with pytest.raises(QueryFailed) as caught:
            client(server.url).query("up")
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert TOKEN not in str(caught.value)


def test_without_a_token_the_server_may_require_one() -> None:
    with Receiver.start() as server:
        server.script(status(401))
        with pytest.raises(QueryFailed, match=r"the server requires a login \(401\)"):
            client(server.url, token=None).query("up")


def test_a_connection_that_breaks_is_a_sentence_without_the_address() -> None:
    with Receiver.start() as server:
        server.always(CUT)
        with pytest.raises(QueryFailed) as caught:
            client(server.url).query("up")
        assert caught.value.message == "the connection was closed before an answer"
        url = server.url
    with pytest.raises(QueryFailed) as caught:
        client(url).query("up")
    assert caught.value.message == "no connection: Connection refused"
    assert caught.value.hint == f"try: curl {url}/api/v1/query?query=up"


def test_prometheus_itself_takes_the_user_and_the_password(tmp_path: Path) -> None:
    with Prometheus(tmp_path, {}, has_login=True) as server:
        settings = MetricsSettings(url=server.url, user=USER, password="env:PW")
        assert PrometheusClient(settings, time.time, {"PW": PASSWORD}).query("vector(1)")
        with pytest.raises(QueryFailed, match=r"the server refuses the user or the password \(401\)") as wrong:
            PrometheusClient(settings, time.time, {"PW": "Tr0ub4dor&3"}).query("vector(1)")
        assert "Tr0ub4dor" not in str(wrong.value)
        with pytest.raises(QueryFailed, match=r"the server requires a login \(401\)"):
            client(server.url, token=None).query("vector(1)")


def test_the_headers_are_sent_and_never_shown() -> None:
    headers = {"X-Scope-OrgID": "team-a", "X-Key": "env:KEY"}
    with Receiver.start() as server:
        server.script(
            status(422, {"status": "error", "error": "tenant team-a with k3y-0f-0urs has a limit, key (k3y-0f-0urs)"})
        )
        settings = MetricsSettings(url=server.url, headers=headers)
        with pytest.raises(QueryFailed) as caught:
            PrometheusClient(settings, time.time, {"KEY": "k3y-0f-0urs"}).query("up")
        [request] = server.requests
    assert (request.headers["x-scope-orgid"], request.headers["x-key"]) == ("team-a", "k3y-0f-0urs")
    assert caught.value.message.endswith(": tenant *** with *** has a limit, key (***)")


def test_a_repeated_login_is_not_shown_in_any_form() -> None:
    basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    with Receiver.start() as server:
        server.script(Answer("status", 400, f"bad login Basic {basic} of {USER}:{PASSWORD}".encode()))
        settings = MetricsSettings(url=server.url, user=USER, password="env:PW")
        with pytest.raises(QueryFailed) as caught:
            PrometheusClient(settings, time.time, {"PW": PASSWORD}).query("up")
    assert PASSWORD not in str(caught.value)
    assert basic not in str(caught.value)


def test_a_missing_tenant_is_named() -> None:
    with Receiver.start() as server:
        server.script(Answer("status", 401, b"no org id\n"))  # as Mimir 2 answers
        with pytest.raises(QueryFailed) as caught:
            client(server.url, token=None).query("up")
    assert caught.value.message == "the server requires a tenant (401): no org id"
    assert caught.value.hint == 'set headers = { X-Scope-OrgID = "…" } in its metrics table'


@pytest.mark.parametrize(
    ("more", "gap"),
    [
        ({"warnings": ["No StoreAPIs matched: store 10.0.0.7:10901 is down"]}, "No StoreAPIs matched: store"),
        ({"isPartial": True}, "a storage node did not answer"),
        ({"isPartial": False, "infos": ["PromQL info: metric might not be a counter"]}, ""),
        ({"warnings": ["PromQL warning: bucket label is missing"]}, ""),
    ],
)
def test_an_incomplete_answer_is_known_as_one(more: dict[str, object], gap: str) -> None:
    """Thanos lists warnings, VictoriaMetrics has a field; Prometheus 3 makes remarks about the query."""
    answer = {"status": "success", "data": {"resultType": "vector", "result": []}, **more}
    with Receiver.start() as server:
        server.script(status(200, answer), Answer("status", 200, (FOLDER / "dcgm.json").read_bytes()))
        asked = client(f"{server.url}/select/0/prometheus")
        assert asked.query("up") == ()
        assert asked.gap.startswith(gap)
        assert bool(asked.gap) == bool(gap)
        asked.query("up")
        assert asked.gap == ""
        assert server.requests[0].path == "/select/0/prometheus/api/v1/query"


def test_a_token_that_is_not_set_is_named_by_its_variable() -> None:
    with pytest.raises(QueryFailed) as caught:
        PrometheusClient(MetricsSettings(url="http://prom:9090", token="env:PROM_TOKEN"), time.time, {}).query("up")
    assert caught.value.message == 'its "token" names the environment variable PROM_TOKEN, which is not set'


def test_the_clock_of_the_server_is_compared_with_ours() -> None:
    with Receiver.start() as server:
        server.always(Answer("status", 200, (FOLDER / "labels.json").read_bytes()))
        ahead = client(server.url, now=lambda: time.time() - 90)
        ahead.query("up")
        assert 85 < ahead.clock_offset < 95
        same = client(server.url)
        same.query("up")
        assert same.clock_offset == 0.0
        late = client(server.url, now=lambda: time.time() + (9.0 if len(server.requests) > 2 else 0.0))
        late.query("up")
        assert late.clock_offset == 0.0, "an answer that took 9 s over a slow link"
