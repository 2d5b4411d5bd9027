"""HTTP for channels: one request within its time, and what its answer means: taken, come again, or never this way."""

from __future__ import annotations

import email.utils
import logging
import math
import ssl
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, MaxRetryError, NameResolutionError, ProxyError, SSLError

from trainmon import __version__
from trainmon.alerting.notify.base import Broken, Retry
from trainmon.lib import Clock, Seconds, SystemClock, clean
from trainmon.lib.deadline import DeadlineExceeded, DeadlineRunner

logging.getLogger("urllib3").setLevel(logging.CRITICAL + 1)
"""It logs the addresses that it asks, and they are secrets."""

ANSWER_BYTES = 65_536
"""Of an answer so much is read."""
WORDS = 200
AGENT = f"trainmon-tui/{__version__}"
COME_AGAIN = frozenset({408, 425, 429})
"""Of the refusals these are for now only; so is everything from 500 on."""
LATEST: Seconds = 86_400.0
"""Nobody is let to put us off for longer."""


class Reply(msgspec.Struct, frozen=True):
    """What a server answered."""

    status: int
    body: bytes
    retry_after: Seconds | None = None

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


class Http:
    """One channel's way to its server. No error that it raises holds an address: they are secrets."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._name = name
        self._clock = clock or SystemClock()
        self._box: DeadlineRunner[Reply] = DeadlineRunner(f"http-{name}")

    def ask(self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str], timeout: Seconds) -> Reply:
        """The server's answer, whatever it is. Raises Retry where there is none in time, Broken where none can be."""
        try:
            return self._box.call(lambda: self._ask(method, url, body, headers, timeout), timeout)
        except DeadlineExceeded:
            raise Retry(f"no answer within {timeout:.0f} s") from None
        except (HTTPError, OSError, ValueError) as error:
            raise _trouble(error, timeout) from None  # its words hold the address

    def _ask(self, method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: Seconds) -> Reply:
        pool = pool_for(url)
        try:
            answer = pool.request(
                method,
                url,
                body=body,
                headers={"User-Agent": AGENT, **headers},
                timeout=urllib3.Timeout(total=timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                told = answer.read(ANSWER_BYTES)
                return Reply(answer.status, told, self._put_off(answer.headers.get("Retry-After")))
            finally:
                answer.close()
        finally:
            pool.clear()

    def _put_off(self, said: str | None) -> Seconds | None:
        """What Retry-After says: seconds, or a date."""
        if said is None:
            return None
        try:
            seconds = float(said)
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(said).timestamp() - self._clock.now()
            except (ValueError, OverflowError):
                return None
        return min(max(seconds, 0.0), LATEST) if math.isfinite(seconds) else None


def pool_for(url: str) -> urllib3.PoolManager:
    """Connections as this machine makes them: by the proxy that its environment names."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    proxy = urllib.request.getproxies_environment().get(parts.scheme)
    if proxy is None or urllib.request.proxy_bypass(host):
        return urllib3.PoolManager(num_pools=1, maxsize=1)
    login = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    headers = {}
    if login.username is not None:
        pair = f"{urllib.parse.unquote(login.username)}:{urllib.parse.unquote(login.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=pair)
    address = f"{login.scheme}://{login.hostname}" + (f":{login.port}" if login.port else "")
    return urllib3.ProxyManager(address, num_pools=1, maxsize=1, proxy_headers=headers)


def judge(reply: Reply, words: str = "") -> None:
    """Nothing for an answer that took it. Raises Retry or Broken for every other."""
    if reply.is_good:
        return
    status = reply.status
    said = f"{status} {_phrase(status)}" + (f": {words}" if words else "")
    if status in COME_AGAIN or status >= 500:
        raise Retry(said, reply.retry_after)
    if 300 <= status < 400:
        raise Broken(f"{said}: it is at another address now; correct the one in the config")
    raise Broken(said)


def text_of(body: bytes) -> str:
    """The first words of an answer, fit to be shown."""
    return clean(body.decode(errors="replace").strip().split("\n")[0], WORDS)


def host_of(url: str) -> str:
    """The only part of an address that is shown."""
    try:
        parts = urllib.parse.urlsplit(url)
        return clean(f"{parts.hostname or '?'}" + (f":{parts.port}" if parts.port else ""), 80)
    except ValueError:
        return "?"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.lower()
    except ValueError:
        return "no luck"


def _trouble(error: Exception, timeout: Seconds) -> Retry | Broken:
    """What happened, in words of our own."""
    cause = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
    if isinstance(cause, SSLError) and _is_untrusted(cause):
        return Broken("its certificate is not trusted here; SSL_CERT_FILE may name your own authority's")
    if isinstance(cause, SSLError | ssl.SSLError):
        return Retry("no TLS connection")
    if isinstance(cause, ProxyError):
        return Retry("the proxy that the environment names does not let it through")
    if isinstance(cause, NameResolutionError):
        return Retry("its host's name is not known now")
    if isinstance(cause, LocationParseError | ValueError) and not isinstance(cause, HTTPError):
        return Broken("its address cannot be read")
    if isinstance(cause, urllib3.exceptions.NewConnectionError):
        return Retry("no connection")
    if isinstance(cause, urllib3.exceptions.TimeoutError):
        return Retry(f"no answer within {timeout:.0f} s")
    return Retry("the connection broke off before an answer")


def _is_untrusted(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        inside = [part for part in seen.args if isinstance(part, ssl.SSLCertVerificationError)]
        if inside or isinstance(seen, ssl.SSLCertVerificationError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
