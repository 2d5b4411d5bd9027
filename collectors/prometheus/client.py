"""The HTTP API of a Prometheus server: one query a request, with a time limit. No error holds the token."""

from __future__ import annotations

import email.utils
import os
import urllib.parse
from collections.abc import Callable, Mapping

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from collectors.prometheus.query import DECODER, Answer, Series
from trainmon.alerting.notify.channels.http import AGENT, pool_for, translated
from trainmon.config import InvalidValue, MetricsSettings, resolve_secret
from trainmon.lib import MASK, Instant, Seconds, TrainmonError, clean, scrub
from trainmon.lib.deadline import DeadlineExceeded, DeadlineRunner

TIMEOUT: Seconds = 10.0
ANSWER_BYTES = 64 * 2**20
"""The maximum size of an answer without compression."""

DATE_PRECISION: Seconds = 2.0
"""The header Date has whole seconds: a smaller difference of the clocks cannot be seen."""


class QueryFailed(TrainmonError):
    """The server did not answer a query, or refused it."""


class PrometheusClient:
    """Queries one server, one query at a time."""

    def __init__(self, settings: MetricsSettings, now: Callable[[], Instant], environ: Mapping[str, str] = os.environ):
        self.clock_offset: Seconds = 0.0
        """The clock of the server minus ours."""
        self._settings = settings
        self._now = now
        self._environ = environ
        self._pool: urllib3.PoolManager | None = None
        self._runner: DeadlineRunner[tuple[int, bytes, str]] = DeadlineRunner("prometheus query")

    def query(self, text: str) -> tuple[Series, ...]:
        """The series of a query about now.

        Raises: QueryFailed: with a sentence for the person who configured the server, and what to do.
        """
        return self._ask("query", {"query": text})

    def query_range(self, text: str, start: Instant, end: Instant, step: Seconds) -> tuple[Series, ...]:
        """The series of a query between two times of our clock.

        Raises: QueryFailed: as `query`.
        """
        begin, until = (f"{at + self.clock_offset:.3f}" for at in (start, end))
        return self._ask("query_range", {"query": text, "start": begin, "end": until, "step": f"{step:g}"})

    def _ask(self, endpoint: str, form: Mapping[str, str]) -> tuple[Series, ...]:
        try:
            token = None if self._settings.token is None else resolve_secret(self._settings.token, self._environ)
        except InvalidValue as wrong:
            hint = 'set it before the program starts, or use "file:/path", which is read again for each query'
            raise QueryFailed(f'its "token" {wrong}', hint=hint) from None
        try:
            status, body, date = self._runner.call(lambda: self._post(endpoint, form, token), TIMEOUT + 1)
        except DeadlineExceeded:
            raise QueryFailed(f"no answer within {TIMEOUT:.0f}s", hint=self._try_hint) from None
        except (HTTPError, OSError, ValueError) as error:
            raise QueryFailed(translated(error, TIMEOUT).message, hint=self._try_hint) from None
        self._compare_clocks(date)
        try:
            answer = DECODER.decode(body)
        except msgspec.DecodeError:
            answer = Answer("")
        if status == 200 and answer.data is not None:
            return answer.data.result
        text = clean(scrub(answer.error if token is None else answer.error.replace(token, MASK)), 200)
        raise refused(status, text, has_token=token is not None)

    @property
    def _try_hint(self) -> str:
        return f"try: curl {self._settings.url}/api/v1/query?query=up"

    def _post(self, endpoint: str, form: Mapping[str, str], token: str | None) -> tuple[int, bytes, str]:
        if self._pool is None:
            self._pool = pool_for(self._settings.url)
        headers = {
            "User-Agent": AGENT,
            "Accept-Encoding": "gzip",
            "Content-Type": "application/x-www-form-urlencoded",
            **({} if token is None else {"Authorization": f"Bearer {token}"}),
        }
        response = self._pool.request(
            "POST",
            f"{self._settings.url}/api/v1/{endpoint}",
            body=urllib.parse.urlencode(form),
            headers=headers,
            timeout=urllib3.Timeout(total=TIMEOUT),
            retries=urllib3.Retry(1, redirect=False, read=False, allowed_methods=None),  # it may have closed the last
            redirect=False,
            preload_content=False,
        )
        try:
            body = response.read(ANSWER_BYTES, decode_content=True)
            return response.status, body, response.headers.get("Date", "")
        finally:
            response.drain_conn()
            response.release_conn()

    def _compare_clocks(self, date: str) -> None:
        try:
            offset = email.utils.parsedate_to_datetime(date).timestamp() - self._now()
        except (ValueError, TypeError):
            return
        if abs(offset - self.clock_offset) > DATE_PRECISION:  # a smaller change is the precision of the header
            self.clock_offset = offset if abs(offset) > DATE_PRECISION else 0.0


def refused(status: int, text: str, *, has_token: bool) -> QueryFailed:
    """What an answer that is no success means, and what to do."""
    detail = f": {text}" if text else ""
    match status:
        case 401 | 403 if has_token:
            return QueryFailed(
                f"the server refuses the token ({status})", hint='renew the "token" of its metrics table'
            )
        case 401 | 403:
            return QueryFailed(f"the server requires a token ({status})", hint='set "token" in its metrics table')
        case 400 | 422:
            return QueryFailed(
                f"the server cannot run the query ({status}){detail}", hint='check "match" and "node_label"'
            )
        case 404 | 405:
            return QueryFailed(f"there is no Prometheus API at its address ({status})", hint='check "url"')
        case 429:
            return QueryFailed(f"the server limits the queries ({status}){detail}", hint='raise "every"')
        case 503 if text:  # a query that takes too long, or too many at once
            return QueryFailed(f"the server gave up the query ({status}): {text}", hint="see the limits of the server")
        case 503:
            return QueryFailed(f"the server is not ready ({status})", hint="it answers when it has started")
        case 200:
            return QueryFailed("its answer is not that of a Prometheus API", hint='check "url"')
        case _ if 300 <= status < 400:
            return QueryFailed(f"the server redirects to another address ({status})", hint='correct "url"')
        case _:
            return QueryFailed(f"the server answers with an error ({status}){detail}", hint="see the log of the server")
