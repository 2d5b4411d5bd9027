"""The HTTP API of a Prometheus server: one query a request, with a time limit. No error holds a secret."""

from __future__ import annotations

import email.utils
import os
import re
import urllib.parse
from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from collectors.prometheus.query import DECODER, Answer, Series
from trainmon.alerting.notify.channels.http import AGENT, pool_for, text_of, translated
from trainmon.alerting.notify.channels.ntfy import login_of
from trainmon.config import InvalidValue, MetricsSettings, resolve_secret
from trainmon.lib import MASK, Instant, Seconds, TrainmonError, clean, clock_difference, scrub
from trainmon.lib.deadline import DeadlineExceeded, DeadlineRunner

TIMEOUT: Seconds = 10.0
ANSWER_BYTES = 64 * 2**20
"""The maximum size of an answer without compression."""

DATE_PRECISION: Seconds = 2.0
"""The header Date has whole seconds: a smaller difference of the clocks cannot be seen."""


PLAIN = (400, 401, 403, 502, 503, 504)
"""The status of refusals in plain text, such as those of Mimir and of proxies; others say nothing that helps."""

GIVEN_UP = ("timeout", "canceled")
"""Types of error of a query that takes too long, or of too many at once."""

NO_TENANT = "no org id"
"""Mimir, Cortex and Loki, without the header X-Scope-OrgID."""


class QueryFailed(TrainmonError):
    """The server did not answer a query, or refused it."""


class PrometheusClient:
    """Queries one server, one query at a time."""

    def __init__(self, settings: MetricsSettings, now: Callable[[], Instant], environ: Mapping[str, str] = os.environ):
        self.clock_offset: Seconds = 0.0
        """The clock of the server minus ours."""
        self.gap = ""
        """Why the last answer may be incomplete, in the words of the server."""
        self._settings = settings
        self._secrets: tuple[str, ...] = ()
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
        headers, asked_at = self._login(), self._now()
        try:
            status, body, date = self._runner.call(lambda: self._post(endpoint, form, headers), TIMEOUT + 1)
        except DeadlineExceeded:
            raise QueryFailed(f"no answer within {TIMEOUT:.0f}s", hint=self._try_hint) from None
        except (HTTPError, OSError, ValueError) as error:
            raise QueryFailed(translated(error, TIMEOUT).message, hint=self._try_hint) from None
        self._compare_clocks(date, asked_at)
        try:
            answer = DECODER.decode(body)
        except msgspec.DecodeError:
            answer = Answer("", error=plain_text(status, body))
        if status == 200 and answer.data is not None:
            self.gap = self._shown(answer.gap)
            return answer.data.result
        raise refused(status, self._shown(answer.error), answer.error_type, self._settings)

    def _login(self) -> dict[str, str]:
        """The headers of a request that hold secrets, which are remembered as what must not be shown.

        Raises: QueryFailed: when one cannot be read.
        """
        own = self._settings
        written = {"token": own.token, "password": own.password, **own.headers}
        found = {}
        for name, text in written.items():
            try:
                found[name] = "" if text is None else resolve_secret(text, self._environ)
            except InvalidValue as wrong:
                hint = 'set it before the program starts, or use "file:/path", which is read again for each query'
                raise QueryFailed(f'its "{name}" {wrong}', hint=hint) from None
        login = login_of(found["token"], own.user, found["password"])
        headers = {name: found[name] for name in own.headers}
        headers |= {} if login is None else {"Authorization": login}
        self._secrets = tuple(filter(None, (*found.values(), *(login or "").split()[1:])))
        return headers

    def _shown(self, text: str) -> str:
        """Words of the server without the secrets that it may repeat."""
        for secret in self._secrets:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
        return clean(scrub(text), 200)

    @property
    def _try_hint(self) -> str:
        return f"try: curl {self._settings.url}/api/v1/query?query=up"

    def _post(self, endpoint: str, form: Mapping[str, str], login: Mapping[str, str]) -> tuple[int, bytes, str]:
        if self._pool is None:
            self._pool = pool_for(self._settings.url)
        form_type = "application/x-www-form-urlencoded"
        headers = {"User-Agent": AGENT, "Accept-Encoding": "gzip", "Content-Type": form_type, **login}
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

    def _compare_clocks(self, date: str, asked_at: Instant) -> None:
        try:
            theirs = email.utils.parsedate_to_datetime(date).timestamp()
        except (ValueError, TypeError):
            return
        offset = clock_difference(theirs, asked_at, self._now(), self.clock_offset)
        if abs(offset - self.clock_offset) > DATE_PRECISION:  # a smaller change is the precision of the header
            self.clock_offset = offset if abs(offset) > DATE_PRECISION else 0.0


def plain_text(status: int, body: bytes) -> str:
    """The text of a refusal that is no JSON; empty if it only repeats its status, or is a page."""
    if status not in PLAIN or body.startswith(b"<"):
        return ""
    text = text_of(body)
    return "" if text.lower() == HTTPStatus(status).phrase.lower() else text


def refused(status: int, text: str, kind: str, used: MetricsSettings) -> QueryFailed:
    """What an answer that is no success means, and what to do about the settings that were used. `kind`: the type of
    error that the server names."""
    detail = f": {text}" if text else ""
    match status:
        case 401 if NO_TENANT in text:
            hint = 'set headers = { X-Scope-OrgID = "…" } in its metrics table'
            return QueryFailed(f"the server requires a tenant ({status}){detail}", hint=hint)
        case 401 | 403 if used.token is not None:
            hint = 'renew the "token" of its metrics table'
            return QueryFailed(f"the server refuses the token ({status}){detail}", hint=hint)
        case 401 | 403 if used.user is not None:
            hint = 'correct "user" or "password" in its metrics table'
            return QueryFailed(f"the server refuses the user or the password ({status}){detail}", hint=hint)
        case 401 | 403:
            hint = 'set "token", or "user" and "password", in its metrics table'
            return QueryFailed(f"the server requires a login ({status}){detail}", hint=hint)
        case 400 | 422:
            return QueryFailed(
                f"the server cannot run the query ({status}){detail}", hint='check "match" and "node_label"'
            )
        case 404 | 405:
            return QueryFailed(f"there is no Prometheus API at its address ({status})", hint='check "url"')
        case 429:
            return QueryFailed(f"the server limits the queries ({status}){detail}", hint='raise "every"')
        case 503 if kind in GIVEN_UP:
            return QueryFailed(f"the server gave up the query ({status}): {text}", hint="see the limits of the server")
        case 503:  # Prometheus says so while it starts, and a proxy while nothing behind it answers
            hint = "is it up, or does it still start?"
            return QueryFailed(f"the server is not available ({status}){detail}", hint=hint)
        case 502 | 504:
            hint = "is the server behind the proxy up?"
            return QueryFailed(f"a proxy gets no answer from the server ({status}){detail}", hint=hint)
        case 200:
            return QueryFailed("its answer is not that of a Prometheus API", hint='check "url"')
        case _ if 300 <= status < 400:
            return QueryFailed(f"the server redirects to another address ({status})", hint='correct "url"')
        case _:
            return QueryFailed(f"the server answers with an error ({status}){detail}", hint="see the log of the server")
