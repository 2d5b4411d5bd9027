"""Masks secrets in text before it is shown, stored or sent: process commands, log lines, error messages.

Shapes first (a token that looks like one is masked wherever it is), then names (`--api-key X`, `HF_TOKEN=X`). Text
about training is left alone: `pad_token=0`, `--sort-key text`, git commits. Every expression is bounded: linear time.
"""

from __future__ import annotations

import re
from functools import lru_cache

from trainmon.lib.text import clean

MASK = "***"

HINTS = (
    "key", "secret", "passw", "passphrase", "credential", "jwt", "auth", "bearer", "login", "://", "sig=",
    "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-", "xox", "xapp-", "akia", "asia",
    "tk_", "eyj", "nvapi-", "pypi-", "aiza", "local-", "wandb_v1_", "hooks.", "webhooks/", "hc-ping.com", "/bot",
    "curl ", "-----begin", "cookie", "pwd=", "pass=", "sshpass ", "mysql", "mariadb",
)  # fmt: skip
"""A text in lower case without any of these and without `token` contains no secret."""

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
"""A W&B key looks like a git commit: it is masked only behind such words."""
NETRC = re.compile(r"(\bmachine\s{1,3}\S{1,200}\s{1,3}login\s{1,3}\S{1,200}\s{1,3}password\s{1,3})(?!-)\S{1,400}")
CURL_LOGIN = re.compile(r"(\bcurl\b.{0,400}?\s(?:-u|--user)[\s=]{1,3}['\"]?[^\s:'\"]{0,200}:)(?!-)[^\s'\"]{1,400}")
COOKIE = re.compile(r"(?i)(\b(?:set-)?cookie['\"]?\s{0,3}:\s{0,3}['\"]?)(?!\*)[^\n'\"]{1,4000}")
SHORT_FLAG = re.compile(r"(\bsshpass\s{1,3}-p\s{0,3}|\b(?:mysql|mysqldump|mariadb)\b.{0,200}?\s-p)(?![\s-])\S{1,400}")

VALUE = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?|[^\s\"'][^\s]*")
FLAG = re.compile(r"(?<![^\s'\"\[(,])--?([A-Za-z][\w.-]{0,79})(?:=|['\"],?\s{1,3}|\s{1,3})")
ASSIGNED = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]{0,79})['\"]?\s{0,3}[=:]\s{0,3}")


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


SECRET_WORDS = {"password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey", "jwt"}
"""A name with one of these words names a secret."""
HARMLESS_SUFFIXES = _words(
    "file path dir name env cmd command prompt length len size count id type url uri arn version"
)
"""… unless it ends in one of these: `password_file` says where, not what."""
MODEL_TOKENS = _words(
    "pad eos bos unk sep cls mask image img video audio vision per eod eot eom boi eoi fim stop start end begin",
    "special new next prev first last prefix middle suffix max min num mean avg by each every think tool call",
    "decoder encoder loss query target prompt text ignore separator latent register dummy space newline language lang",
)
"""`pad_token` is part of a vocabulary, not a secret."""
SECRET_KEYS = _words(
    "api access secret private auth encryption signing master account storage service ssh license subscription app",
    "application client user deploy host shared sas session webhook admin azure aws gcp s3 minio hf huggingface wandb",
    "comet neptune mlflow openai anthropic ntfy pushover slack discord ngrok datadog dd",
)
"""`api_key` is a secret; `sort_key` and `image_key` name a column."""
SECRET_PASSES = _words(
    "db database mysql mariadb pg postgres postgresql redis mongo smtp mail email imap ftp sftp proxy registry docker",
    "user admin root login ldap ssh sudo vault minio s3 rabbitmq mqtt http https basic ntfy",
)
"""`DB_PASS` is a secret; `forward_pass` and `PWD` are not."""
DATA_KEYS = _words(
    "text json sort primary foreign label labels input output data dataset image video audio caption loss metric",
    "prompt content message messages question answer response chosen rejected source target group index column row",
    "field sample id dict map lookup cache public feature reward score best monitor partition train eval val test",
    "state query embed embedding system instruction completion context history role tag attn attention head hot k v q",
    "value join merge",
)
PLAIN_VALUES = {MASK, "true", "false", "none", "null", "yes", "no", "on", "off", "str", "int", "float", "bool"}
QUOTES = "\"'"
TRAILING = ",;)]}'\""


def scrub(text: str) -> str:
    """The text with its secrets replaced by `***`. Scrubbing twice changes nothing more."""
    lower = text.lower()
    if not _is_suspicious(lower):
        return text
    if "-----begin" in lower:
        text = PEM.sub(rf"\1 {MASK}\2", text)
    text = SHAPE.sub(lambda match: f"{match[match.lastindex or 0]}{MASK}", text)
    if "://" in lower or "hc-ping" in lower or "hooks" in lower or "/bot" in lower:
        text = URL_LOGIN.sub(rf"\1{MASK}@", text)
        text = HOOK.sub(rf"\1{MASK}", text)
    if "?" in lower or "&" in lower:
        text = QUERY.sub(rf"\1{MASK}", text)
    if "auth" in lower or "bearer" in lower:
        text = HEADER.sub(lambda match: f"{match[1]}{f'{match[2]} ' if match[2] else ''}{MASK}", text)
        text = BEARER.sub(rf"\1{MASK}", text)
    if "login" in lower or "password" in lower or "api" in lower:
        text = NETRC.sub(rf"\1{MASK}", text)
        found = KEY_FOLLOWS.search(text)
        if found is not None:
            text = text[: found.end()] + HEX_KEY.sub(MASK, text[found.end() :])
    if "curl " in lower:
        text = CURL_LOGIN.sub(rf"\1{MASK}", text)
    if "cookie" in lower:
        text = COOKIE.sub(rf"\1{MASK}", text)
    if "sshpass " in lower or "mysql" in lower or "mariadb" in lower:
        text = SHORT_FLAG.sub(rf"\1{MASK}", text)
    if "-" in lower:
        text = _mask_named(text, FLAG, flags=True)
    return _mask_named(text, ASSIGNED, flags=False)


def _is_suspicious(lower: str) -> bool:
    for hint in HINTS:  # a plain loop: any() with a generator takes twice as long, on every line of every log
        if hint in lower:
            return True
    return "token" in lower and lower.count("token") > lower.count("tokens") + lower.count("tokeniz")


def _mask_named(text: str, names: re.Pattern[str], *, flags: bool) -> str:
    """Mask the value of every name that names a secret. Names inside the value of a harmless name count, too."""
    pieces, done = [], 0
    for found in names.finditer(text):
        if found.end() < done or not is_secret(found[1], flags):
            continue
        value = VALUE.match(text, found.end())
        if value is None or _is_plain(value[0]):
            continue
        is_flag = found[0][-1].isspace() and value[0].startswith("-")
        quote = value[0][0] if value[0][0] in QUOTES else ""
        if is_flag or (":" in found[0] and not quote and len(value[0]) < 8):  # prose follows the colon
            continue
        end = quote if len(value[0]) > 1 and value[0].endswith(quote) else ""
        if not quote:
            end = value[0][len(value[0].rstrip(TRAILING)) :]
        pieces += [text[done : found.end()], f"{quote}{MASK}{end}"]
        done = value.end()
    return "".join(pieces) + text[done:]


def _is_plain(value: str) -> bool:
    """Whether a value is not a secret: a small number, a boolean, `<pad>`, or already masked."""
    bare = value.strip(QUOTES).rstrip(TRAILING).strip()
    return (
        not bare
        or bare.lower() in PLAIN_VALUES
        or bare.startswith((MASK, "<", "[", "{", "$"))
        or (len(bare) < 12 and bare.replace(".", "").replace(",", "").replace("/", "").isdigit())
    )


def last_line(output: bytes, limit: int = 300) -> str:
    """The last line of a command's output, safe to show; empty without output."""
    return scrub(clean(output.decode("utf-8", "replace").strip().rpartition("\n")[2], limit))


@lru_cache(maxsize=2048)
def is_secret(name: str, as_flag: bool) -> bool:
    """Whether a name names a secret: `--key X` on a command line does, `key=X` in a log line does not."""
    snake_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    words = ["", "", *filter(None, re.split(r"[-._]", snake_case))]
    before, last = words[-2:]
    if last in HARMLESS_SUFFIXES:
        return False
    if not SECRET_WORDS.isdisjoint(words) or last.endswith(("password", "passwd")):
        return True
    match last:
        case "pass" | "pwd" | "sshpass":
            return before in SECRET_PASSES or last == "sshpass"
        case "token":
            return before not in MODEL_TOKENS
        case "key":
            return before not in DATA_KEYS if as_flag or name.isupper() else before in SECRET_KEYS
    return last == "auth" and as_flag
