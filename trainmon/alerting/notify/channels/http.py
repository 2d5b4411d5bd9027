"""HTTP for channels: one request with a timeout, and whether its response is a success, temporary or final."""

from __future__ import annotations

import contextlib
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
from urllib3.exceptions import HTTPError, MaxRetryError, NameResolutionError, ProxyError, SSLError

from trainmon import __version__
from trainmon.alerting.notify.message import Broken, Retry
from trainmon.lib import Clock, Seconds, SystemClock, clean
from trainmon.lib.threads import DeadlineExceeded, DeadlineRunner

logging.getLogger("urllib3").setLevel(logging.CRITICAL + 1)
"""It logs request URLs, and they are secrets."""

RESPONSE_BYTES = 65_536
"""The rest of a response is not read."""
AGENT = f"trainmon-tui/{__version__}"
COME_AGAIN = frozenset({408, 425, 429})
"""The temporary errors below 500; all from 500 on are temporary."""
RETRY_AFTER_AT_MOST: Seconds = 86_400.0


class Reply(msgspec.Struct, frozen=True):
    """The response of a server."""

    status: int
    body: bytes
    retry_after: Seconds | None = None

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


class Http:
    """The HTTP client of one channel. No error that it raises holds an address: addresses are secrets."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._deadline_runner: DeadlineRunner[Reply] = DeadlineRunner(f"http-{name}")

    def request(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str], timeout: Seconds
    ) -> Reply:
        """The response of the server, a success or an error.

        Raises:
            Retry: there is no response in time.
            Broken: there can be no response, such as for a certificate that is not trusted.
        """
        try:
            return self._deadline_runner.call(lambda: self._request(method, url, body, headers, timeout), timeout)
        except DeadlineExceeded:
            raise Retry(f"no answer within {timeout:.0f}s") from None
        except (HTTPError, OSError, ValueError) as error:
            raise translated(error, timeout) from None  # its text holds the address

    def _request(self, method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: Seconds) -> Reply:
        with (
            pool_for(url) as pool,
            contextlib.closing(
                pool.request(
                    method,
                    url,
                    body=body,
                    headers={"User-Agent": AGENT, **headers},
                    timeout=urllib3.Timeout(total=timeout),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                )
            ) as response,
        ):
            retry_after = self._retry_after(response.headers.get("Retry-After", ""))
            return Reply(response.status, response.read(RESPONSE_BYTES), retry_after)

    def _retry_after(self, value: str) -> Seconds | None:
        """The header Retry-After: seconds, or a date."""
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - self._clock.now()
            except (ValueError, OverflowError):
                return None
        return min(max(seconds, 0.0), RETRY_AFTER_AT_MOST) if math.isfinite(seconds) else None


def pool_for(url: str) -> urllib3.PoolManager:
    """A connection pool that uses the proxy of the environment."""
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies_environment().get(parts.scheme)
    if proxy is None or urllib.request.proxy_bypass(parts.hostname or ""):
        return urllib3.PoolManager(num_pools=1, maxsize=1)
    login = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    headers = {}
    if login.username is not None:
        user, password = urllib.parse.unquote(login.username), urllib.parse.unquote(login.password or "")
        headers = urllib3.make_headers(proxy_basic_auth=f"{user}:{password}")
    address = f"{login.scheme}://{login.hostname}" + (f":{login.port}" if login.port else "")
    return urllib3.ProxyManager(address, num_pools=1, maxsize=1, proxy_headers=headers)


def judge(reply: Reply, detail: str = "") -> None:
    """Raise the error of a response that is not a success.

    Raises: Retry, Broken.
    """
    if reply.is_good:
        return
    status = reply.status
    phrase = HTTPStatus(status).phrase.lower() if status in tuple(HTTPStatus) else "unknown status"
    error = f"{status} {phrase}" + (f": {detail}" if detail else "")
    if status in COME_AGAIN or status >= 500:
        raise Retry(error, reply.retry_after)
    moved = ": it is at another address now; correct the one in the config" if 300 <= status < 400 else ""
    raise Broken(f"{error}{moved}")


def text_of(body: bytes) -> str:
    """The first line of a response, printable."""
    return clean(body.decode(errors="replace").strip().split("\n")[0], 200)


def host_of(url: str) -> str:
    """The host and port of an address: the only part that is shown."""
    try:
        parts = urllib.parse.urlsplit(url)
        return clean(f"{parts.hostname or '?'}" + (f":{parts.port}" if parts.port else ""), 80)
    except ValueError:
        return "?"


def translated(error: Exception, timeout: Seconds) -> Retry | Broken:
    """The error of a request in our own words, without its address."""
    cause = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
    match cause:
        case SSLError() if _is_untrusted(cause):
            return Broken("its certificate is not trusted here; for your own CA, set SSL_CERT_FILE")
        case SSLError() | ssl.SSLError():
            return Retry("no TLS connection")
        case ProxyError():
            return Retry("the proxy of the environment refuses the connection")
        case NameResolutionError():
            return Retry("the name of its host cannot be resolved now")
        case ValueError() if not isinstance(cause, HTTPError):
            return Broken("its address is not valid")
        case urllib3.exceptions.NewConnectionError():
            reason = getattr(cause.__cause__, "strerror", None)  # `Connection refused`
            return Retry(f"no connection: {reason}" if reason else "no connection")
        case urllib3.exceptions.TimeoutError():
            return Retry(f"no answer within {timeout:.0f}s")
        case _:
            return Retry("the connection was closed before an answer")


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if any(isinstance(one, ssl.SSLCertVerificationError) for one in (error, *error.args)):
            return True
        error = error.__cause__ or error.__context__
    return False
