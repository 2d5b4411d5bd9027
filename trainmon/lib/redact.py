"""Masks secrets in text that will be shown, stored or sent: process commands, log lines, error messages.

Shapes first (a token that looks like one is masked wherever it is), then names (`--api-key X`, `HF_TOKEN=X`). Text
about training is left alone: `pad_token=0`, `--sort-key text`, git commits. Every expression is bounded: linear time.
"""

from __future__ import annotations

import re
from functools import lru_cache

MASK = "***"

HINTS = (
    "key", "secret", "passw", "passphrase", "credential", "jwt", "auth", "bearer", "login", "://", "sig=",
    "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-", "xox", "xapp-", "akia", "asia",
    "tk_", "eyj", "nvapi-", "pypi-", "aiza", "local-", "wandb_v1_", "hooks.", "webhooks/", "hc-ping.com", "/bot",
    "curl ", "-----begin",
)  # fmt: skip
"""A text with none of these and no `token`, in lower case, holds nothing that is masked here."""

SHAPE = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"(hf_|gh[pousr]_)[A-Za-z0-9]{20,}"
    r"|(github_pat_|wandb_v1_)\w{20,}"
    r"|(glpat-|nvapi-|pypi-|xapp-|xox[a-z]-)[\w-]{8,}"
    r"|(sk-)(?=[\w-]{0,200}\d)[\w-]{20,}"
    r"|(AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|(AIza)[\w-]{30,}"
    r"|(tk_)[a-z0-9]{29}(?![A-Za-z0-9])"
    r"|(local-)[0-9a-f]{40}(?![A-Za-z0-9])"
    r"|(eyJ)[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"
    r")"
)
PEM = re.compile(
    r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----).*?(-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
URL_LOGIN = re.compile(r"(://[^\s/:@'\"]{0,200}:)[^\s/'\"]{1,400}@")
QUERY = re.compile(
    r"(?i)([?&;](?:[\w-]{0,40}(?:token|secret|password|signature|credential)|(?:[\w-]{0,40}[_-])?(?:key|sig)|apikey|auth|jwt)=)"
    r"[^&\s'\"#;]{1,2000}"
)
HOOK = re.compile(
    r"(?i)(\bhooks\.slack\.com/|/api/webhooks/|\bapi\.telegram\.org/bot|\bhc-ping\.com/|\.webhook\.office\.com/)"
    r"[^\s'\"<>]{1,1000}"
)
HEADER = re.compile(
    r"(?i)(\b(?:proxy-)?authorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?)(?:(basic|bearer|token|digest|negotiate)\s{1,3})?"
    r"(?!-)[^\s'\",;]{1,4000}"
)
BEARER = re.compile(r"(?i)(\bbearer\s{1,3})(?=[^\s'\"]{0,400}\d|[^\s'\"]{24})[\w.~+/=-]{8,}")
KEY_FOLLOWS = re.compile(r"(?i)\b(?:wandb[\w.]{0,20}\s{1,3}login|api[ _-]key|password)\b")
HEX_KEY = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")
"""A W&B key looks like a git commit, which is none of our business: only what follows such words is masked."""
NETRC = re.compile(r"(\bmachine\s{1,3}\S{1,200}\s{1,3}login\s{1,3}\S{1,200}\s{1,3}password\s{1,3})(?!-)\S{1,400}")
CURL_LOGIN = re.compile(r"(\bcurl\s.{0,400}?\s(?:-u|--user)[\s=]{1,3}['\"]?[^\s:'\"]{0,200}:)(?!-)[^\s'\"]{1,400}")

VALUE = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?|[^\s\"'][^\s]*")
FLAG = re.compile(r"(?<![^\s'\"\[(,])--?([A-Za-z][\w.-]{0,79})(?:=|['\"],?\s{1,3}|\s{1,3})")
ASSIGNED = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]{0,79})['\"]?\s{0,3}[=:]\s{0,3}")


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


ALWAYS = {"password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey", "jwt"}
"""A name with one of these words is a secret's."""
HARMLESS_ENDS = _words("file path dir name env cmd command prompt length len size count id type url uri arn version")
"""… unless it ends in one of these: `password_file` says where, not what."""
MODEL_TOKENS = _words(
    "pad eos bos unk sep cls mask image img video audio vision per eod eot eom boi eoi fim stop start end begin",
    "special new next prev first last prefix middle suffix max min num mean avg by each every think tool call",
    "decoder encoder loss query target prompt text ignore separator latent register dummy space newline language lang",
)
"""`pad_token` belongs to a vocabulary, not to a login."""
SECRET_KEYS = _words(
    "api access secret private auth encryption signing master account storage service ssh license subscription app",
    "application client user deploy host shared sas session webhook admin azure aws gcp s3 minio hf huggingface wandb",
    "comet neptune mlflow openai anthropic ntfy pushover slack discord ngrok datadog dd",
)
"""`api_key` is a secret; `sort_key` and `image_key` name a column."""
DATA_KEYS = _words(
    "text json sort primary foreign label labels input output data dataset image video audio caption loss metric",
    "prompt content message messages question answer response chosen rejected source target group index column row",
    "field sample id dict map lookup cache public feature reward score best monitor partition train eval val test",
    "state query embed embedding system instruction completion context history role tag attn attention head hot k v q",
    "value join merge",
)
PLAIN_VALUES = {MASK, "true", "false", "none", "null", "yes", "no", "on", "off", "str", "int", "float", "bool"}
QUOTES = "\"'"


def scrub(text: str) -> str:
    """The text with its secrets replaced by `***`. Scrubbing twice changes nothing more."""
    lower = text.lower()
    if not _is_suspicious(lower):
        return text
    if "-----begin" in lower:
        text = PEM.sub(rf"\1 {MASK}\2", text)
    text = SHAPE.sub(_shape, text)
    if "://" in lower or "hc-ping" in lower or "hooks" in lower or "/bot" in lower:
        text = URL_LOGIN.sub(rf"\1{MASK}@", text)
        text = HOOK.sub(rf"\1{MASK}", text)
    if "?" in lower or "&" in lower:
        text = QUERY.sub(rf"\1{MASK}", text)
    if "auth" in lower or "bearer" in lower:
        text = BEARER.sub(rf"\1{MASK}", HEADER.sub(_header, text))
    if "login" in lower or "password" in lower or "api" in lower:
        text = _hex_keys(NETRC.sub(rf"\1{MASK}", text))
    if "curl " in lower:
        text = CURL_LOGIN.sub(rf"\1{MASK}", text)
    if "-" in lower:
        text = _mask_named(text, FLAG, flags=True)
    return _mask_named(text, ASSIGNED, flags=False)


def _is_suspicious(lower: str) -> bool:
    for hint in HINTS:  # a plain loop: any() with a generator takes twice as long, on every line of every log
        if hint in lower:
            return True
    return "token" in lower and lower.count("token") > lower.count("tokens") + lower.count("tokeniz")


def _shape(match: re.Match[str]) -> str:
    return f"{match[match.lastindex or 0]}{MASK}"


def _hex_keys(text: str) -> str:
    found = KEY_FOLLOWS.search(text)
    return text if found is None else text[: found.end()] + HEX_KEY.sub(MASK, text[found.end() :])


def _header(match: re.Match[str]) -> str:
    scheme = f"{match[2]} " if match[2] else ""
    return f"{match[1]}{scheme}{MASK}"


def _mask_named(text: str, names: re.Pattern[str], *, flags: bool) -> str:
    """Mask the value behind every name that is a secret's. A harmless name hides no name within its value."""
    pieces, done = [], 0
    for found in names.finditer(text):
        if found.end() < done or not is_secret(found[1], flags):
            continue
        value = VALUE.match(text, found.end())
        if value is None or _is_plain(value[0]) or _is_another(found[0], value[0]):
            continue
        pieces += [text[done : found.end()], _masked(value[0])]
        done = value.end()
    return "".join(pieces) + text[done:] if pieces else text


def _is_another(before: str, value: str) -> bool:
    """Whether what follows a name is not its value: the next flag, or prose behind a colon."""
    if before[-1].isspace() and value.startswith("-"):
        return True
    return ":" in before and value[0] not in QUOTES and len(value) < 8


def _masked(value: str) -> str:
    quote = value[0] if value[0] in QUOTES else ""
    if quote:
        closed = len(value) > 1 and value.endswith(quote)
        return quote + MASK + (quote if closed else "")
    end = len(value.rstrip(",;)]}'\""))
    return MASK + value[end:] if end else value


def _is_plain(value: str) -> bool:
    """Whether a value says that its name is not a secret's: a small number, a switch, `<pad>`, or masked already."""
    bare = value.strip("\"'").rstrip(",;)]}'\"").strip()
    return (
        not bare
        or bare.lower() in PLAIN_VALUES
        or bare.startswith((MASK, "<", "[", "{", "$"))
        or (len(bare) < 12 and bare.replace(".", "").replace(",", "").replace("/", "").isdigit())
    )


@lru_cache(maxsize=2048)
def is_secret(name: str, as_flag: bool) -> bool:
    """Whether a name says that its value is a secret: `--key X` on a command line is, `key=X` in a log line is not."""
    words = (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-")).lower().replace("-", "_").replace(".", "_").split("_")
    )
    words = [word for word in words if word]
    if not words or words[-1] in HARMLESS_ENDS:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if not ALWAYS.isdisjoint(words):
        return True
    if last == "token":
        return before not in MODEL_TOKENS
    if last != "key":
        return last == "auth" and as_flag
    if as_flag or name.isupper():
        return before not in DATA_KEYS
    return before in SECRET_KEYS
