"""Text for people: safe to show without secrets, in cells, with units, and sentences that name what they can do. Pure.

Secrets by their shapes first (a token that looks like one is masked wherever it is), then by names (`--api-key X`,
`HF_TOKEN=X`). Text about training is left alone: `pad_token=0`, `--sort-key text`, git commits. Every expression is
bounded: linear time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple

from trainmon.lib.clock import DURATION_UNITS

# ---- text that is safe to show, and its width ------------------------------------------------------------------------

LIMIT = 4_000
"""The maximum length of a line: no screen is wider, and a 10 MB line must not stay in memory."""

SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor moves; also when cut off
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\)?"  # OSC, DCS, SOS, PM, APC strings
    r"|\x1b[ -/]*[0-~]?"  # every other escape, a lone ESC included
)
"""Terminal control sequences in their 7-bit and 8-bit forms. No two branches can share a character: linear time."""

INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Characters that count as printable, but show nothing or change a neighbour's width."""


def clean(text: str, limit: int = LIMIT) -> str:
    """Make a line of untrusted text safe to show: no control sequence, nothing invisible, at most `limit` long."""
    if len(text) <= limit and text.isprintable() and (text.isascii() or INVISIBLE.search(text) is None):
        return text
    if len(text) > 4 * limit:
        tail = text[-4 * limit :]
        text = tail if "\r" in tail else text[: 4 * limit]
    text = last_state(without_sequences(text))
    if "\t" in text:
        text = text.expandtabs(8)
    if not text.isascii():
        text = INVISIBLE.sub("", text)
    if not text.isprintable():
        text = "".join(map(_shown, text))
    return text[:limit]


def without_sequences(text: str) -> str:
    """Remove terminal control sequences. Other control characters stay."""
    return SEQUENCE.sub("", text)


def last_state(text: str) -> str:
    """The last state of a line that carriage returns rewrite, such as a progress bar."""
    if "\r" not in text:
        return text
    return next((state for state in reversed(text.rstrip("\r\n").split("\r")) if state.strip()), "")


@lru_cache(maxsize=4096)
def _shown(character: str) -> str:
    if character.isprintable():
        return character
    category = unicodedata.category(character)
    if character == "\n" or category[0] == "Z":
        return " "
    return "\ufffd" if category in ("Cn", "Co") else ""


def cell_width(text: str) -> int:
    """The width of a clean text in terminal cells."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


@lru_cache(maxsize=4096)
def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, width: int, mark: str = "…") -> str:
    """Cut a clean text to at most `width` cells; `mark` shows where it was cut."""
    if len(text) <= width // 2 or cell_width(text) <= width:
        return text
    width -= cell_width(mark)
    if width < 0:
        return ""
    for index, character in enumerate(text):
        width -= _cells_of(character)
        if width < 0:
            return text[:index] + mark
    return text


def shorten_start(text: str, width: int) -> str:
    """Cut a clean text at its start to at most `width` cells: for paths, whose end matters most."""
    return shorten(text[::-1], width)[::-1]


def shorten_middle(text: str, width: int) -> str:
    """Cut a clean text in its middle to at most `width` cells: for names, which differ at their ends."""
    if cell_width(text) <= width:
        return text
    end = max(0, width - 1) // 2
    return shorten(text, width - end) + shorten(text[::-1], end, "")[::-1]


LEAST_NAME = 16
NUMBER = re.compile(r"(?<![\w./[-])(?<!key )\d(?:[\w.,:]*\w)?(?: ?%| °C| of \d+| [KMGTP]?i?B\b)?")


@lru_cache(maxsize=1024)  # what ended is shown again with each age of what has not
def shorten_sentence(text: str, width: int) -> str:
    """Cut a clean sentence to at most `width` cells: its first words, and behind them more of its numbers, in order.

    Two numbers are worth fewer first words, but that of a key is none. Each has the words beside it, as
    `12,870 … 100%` says nothing; where they have no room, only numbers with a unit are shown. No number is cut itself.
    Long names are cut in their middle.
    """
    if cell_width(text) > width:
        text = " ".join(shorten_middle(word, max(LEAST_NAME, width // 3)) for word in text.split(" "))
    start, numbers = shorten(text, width), list(NUMBER.finditer(text))
    if start == text:
        return text
    half = next((one for one in numbers if one.start() < len(start) - 1 < one.end()), None)
    if half is not None and half.start():
        start = text[: half.start()].rstrip() + " …"
    spaces = [at for at in range(len(start) - 1, max(0, width // 2 - 3), -1) if start[at] == " "]
    found = [(min(2.0, sum(one.end() < len(start) for one in numbers)) - 0.5 * (half is not None), start)]
    alone = [one.span() for one in numbers if not one[0].replace(",", "").isdecimal()]
    for parts in ([_with_neighbours(text, *one.span()) for one in numbers], alone):
        found += [_with_parts(text, space, parts, width) for space in spaces]
    return max(found, key=lambda one: one[0])[1]


def _with_neighbours(text: str, start: int, end: int) -> tuple[int, int]:
    """Where the words of a number begin and end, with those beside them of the same part of the sentence."""
    start, end = text.rfind(" ", 0, start) + 1, text.find(" ", end) % (len(text) + 1)
    if "(" in text[start:end] and ")" not in text[start:end]:
        end = max(end, text.find(")", end) + 1)
    if start > 1 and text[start - 2] not in ",;:":
        start = text.rfind(" ", 0, start - 1) + 1
    if text[end - 1] not in ",;:)" and text[end + 1 : end + 2].isalpha():
        end = text.find(" ", end + 1) % (len(text) + 1)
    return start, end


def _with_parts(text: str, end: int, parts: list[tuple[int, int]], width: int) -> tuple[float, str]:
    """The first words of a text and as many of these parts of it as fit; and how many are shown, at most two: none if
    none of them fits behind the words."""
    made, shown, words = text[:end], sum(last <= end for _, last in parts), end
    for first, last in parts[shown:]:
        more = text[end:last] if first <= end + 1 else f" … {text[first:last]}"
        if cell_width(made + more.rstrip(",;:")) + 2 * ("…" not in made + more) > width:
            break
        made, end, shown = made + more, max(end, last), shown + 1
    made = made.rstrip(",;:")
    return min(2, shown) if end > words else -1, made if "…" in made else f"{made} …"


def shorten_lines(text: str, limit: int, mark: str) -> tuple[str, bool]:
    """The text in at most `limit` bytes of UTF-8, cut after a line with a mark; and whether it is the whole text."""
    if len(text.encode()) <= limit:
        return text, True
    cut = text.encode()[: max(0, limit - len(mark.encode()) - 1)].decode(errors="ignore")
    whole_lines = cut if text.startswith(f"{cut}\n") else cut.rpartition("\n")[0]
    return f"{whole_lines or cut}\n{mark}", False


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last of consecutive ascending numbers: 2, 3, 4, 7 → (2, 4), (7, 7)."""
    groups = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    found = [[number for _, number in group] for _, group in groups]
    return [(group[0], group[-1]) for group in found]


def spans_text(spans: Iterable[tuple[int, int]]) -> str:
    """`0-7, 9`"""
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def ordinal(number: int) -> str:
    """`2nd`, `11th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def counted(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b, c and 4 more`: at most this many names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def duration(seconds: float) -> str:
    """A duration for people: 4.1s, 42s, 11m, 3h10m, 6h, 2d4h. From 100s on, as `ago`."""
    if seconds < 100:
        return f"{seconds:.1f}s".replace(".0s", "s") if seconds < 9.95 else f"{seconds:.0f}s"
    return ago(60 * round(seconds / 60))


def ago(seconds: float) -> str:
    """An age for people, in whole units that have passed: `59s`, `6m`, `3h12m`, `2d4h`."""
    total = int(max(0.0, seconds))
    days, hours, minutes = total // 86_400, total // 3_600 % 24, total // 60 % 60
    if days:
        return f"{days}d" + (f"{hours}h" if hours else "")
    if hours:
        return f"{hours}h" + (f"{minutes:02}m" if minutes else "")
    return f"{minutes}m" if minutes else f"{total}s"


def elapsed(since: float | None, now: float) -> str:
    """`for 3m`, or `yet` without a time: no data yet, no data for 3m."""
    return "yet" if since is None else f"for {duration(now - since)}"


def at_text(at: float) -> str:
    """A time (seconds since 1970) in UTC with its date: readers are in other time zones, and may read it days later."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


AGE = r"(?<![\w./-])(\d+(?:\.\d+)?)([smhd])(?:(\d+)([smh]))?"
AGO = re.compile(rf"{AGE} ago\b")
RELATIVE = re.compile(rf"{AGE}\b")
DATED = re.compile(r"\b(?:about|as of) [A-Z][a-z]{2} \d\d \d\d:\d\d(?::\d\d)? UTC")


def dated(text: str, at: float) -> str:
    """A sentence of that time (seconds since 1970) as it may be shown later: `2m ago` becomes `at about Nov 23 12:06
    UTC`, and after `armed for 5m` stands when that was true. A sentence that has its time stays as it is."""
    if DATED.search(text) is not None:
        return text

    def instant(found: re.Match[str]) -> str:
        parts = [(float(number), unit) for number, unit in (found.groups()[:2], found.groups()[2:]) if number]
        rest = DURATION_UNITS[parts[-1][1]] / 2  # it was cut to whole units
        age = rest + sum(number * DURATION_UNITS[unit] for number, unit in parts)
        return f"at about {_clock(at - age, found[2])} UTC"

    later = AGO.sub(instant, text)
    return later if RELATIVE.search(later) is None else f"{later} (as of {_clock(at, 's')} UTC)"


def _clock(at: float, unit: str) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%b %d %H:%M:%S" if unit == "s" else "%b %d %H:%M")


def size(value: float | None) -> str:
    """Bytes in a sentence: 4.1 TiB, -3.0 GiB, 0 B; `?` if they are not known."""
    if value is None:
        return "?"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if abs(value) < 999.5 or unit == "EiB":
            break
        value /= 1024.0
    return f"{value:.1f} {unit}" if abs(value) < 9.95 and unit != "B" else f"{value:.0f} {unit}"


def short_size(value: float | None) -> str:
    """Bytes in a column of a table, as df -h: 4.1T, -3.0G, 0B."""
    return size(value).replace(" ", "").removesuffix("iB")


def short_number(value: float, digits: int) -> str:
    """With a unit, and so many digits: 87, 1.9M, 412k with two, 48.1k, 1.62M with three."""
    for unit in ("", "k", "M", "G", "T", "P", "E"):
        if abs(value) < 999.5 or unit == "E":
            break
        value /= 1000.0
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(0, digits - 1 - exponent) if unit else 0}f}{unit}"


def mib_size(mib: float | None) -> str:
    """MiB in a sentence: 78 GiB, 512 MiB; `?` if they are not known."""
    return size(None if mib is None else mib * 1_048_576.0)


@lru_cache(4096)
def natural_key(name: str) -> tuple[str | int, ...]:
    """A sort key: gpu-2 comes before gpu-10. Texts and numbers alternate, so all keys can be compared."""
    return tuple(int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", name)))


def instruction(hint: str | None) -> str:
    """A hint behind a label that says that it is what to do: without its own `try: `."""
    return (hint or "").removeprefix("try: ")


# ---- sentences that name what a person can do ------------------------------------------------------------------------

Medium = Literal["key", "command"]
"""Where a sentence is read: beside the keys of the dashboard, or on a command line."""


class Means(NamedTuple):
    """How a person does something. `ask` in trainmon.actions.verbs makes those of a verb."""

    key: str
    command: str


Sentence = str | tuple[str | Means, ...]
"""A text, or its parts."""


def say(sentence: Sentence, medium: Medium = "key") -> str:
    """The text of a sentence. What is kept names keys."""
    parts = (sentence,) if isinstance(sentence, str) else sentence
    return "".join(part if isinstance(part, str) else getattr(part, medium) for part in parts)


def joined(*sentences: Sentence) -> Sentence:
    """Several sentences as one; a text if they are texts."""
    parts = tuple(part for one in sentences for part in ((one,) if isinstance(one, str) else one))
    return parts if any(isinstance(part, Means) for part in parts) else say(parts)


# ---- masks secrets in text before it is shown, stored or sent --------------------------------------------------------

MASK = "***"

HINTS = (
    "key", "secret", "passw", "passphrase", "credential", "jwt", "auth", "bearer", "login", "://", "sig=",
    "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-", "xox", "xapp-", "akia", "asia",
    "tk_", "eyj", "nvapi-", "pypi-", "aiza", "local-", "wandb_v1_", "hooks.", "webhooks/", "hc-ping.com", "/bot",
    "curl ", "-----begin", "cookie", "pwd=", "pass=", "sshpass ", "mysql", "mariadb", "api_org_", "npm_", "gsk_",
    "xai-", "dckr_pat_", "hvs.", "ya29.",
)  # fmt: skip
"""A text in lower case without any of these and without `token` contains no secret."""

HEX_KEY = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")
"""A W&B key looks like a git commit: it is masked only behind words that announce one."""

SHAPES: tuple[tuple[tuple[str, ...], re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (
        ("-----begin",),
        re.compile(
            r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----).*?(-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        rf"\1 {MASK}\2",
    ),
    (
        ("",),
        re.compile(
            r"(?<![A-Za-z0-9_-])(?:"
            r"(hf_|gh[pousr]_|api_org_|npm_|gsk_|xai-)[A-Za-z0-9]{20,}"
            r"|(github_pat_|wandb_v1_)\w{20,}"
            r"|(glpat-|nvapi-|pypi-|xapp-|xox[a-z]-|dckr_pat_|hvs\.|ya29\.)[\w-]{8,}"
            r"|(sk-)(?=[\w-]{0,200}\d)[\w-]{20,}"
            r"|(AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"
            r"|(AIza)[\w-]{30,}"
            r"|(tk_)[a-z0-9]{29}(?![A-Za-z0-9])"
            r"|(local-)[0-9a-f]{40}(?![A-Za-z0-9])"
            r"|(eyJ)[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"
            r")"
        ),
        rf"\1\2\3\4\5\6\7\8\9{MASK}",
    ),
    (("://",), re.compile(r"(://[^\s/:@'\"]{0,200}:)[^\s/'\"]{1,400}@"), rf"\1{MASK}@"),
    (
        ("://",),  # a token in place of a user's name
        re.compile(r"(https?://)(?=[^\s/:@'\"]{0,200}\d)[^\s/:@'\"]{20,400}(?=(?::[^\s/'\"]{0,400})?@)"),
        rf"\1{MASK}",
    ),
    (
        ("://", "hc-ping", "hooks", "/bot"),
        re.compile(
            r"(?i)(\bhooks\.slack\.com/|/api/webhooks/|\bapi\.telegram\.org/bot|\bhc-ping\.com/|\.webhook\.office\.com/)"
            r"[^\s'\"<>]{1,1000}"
        ),
        rf"\1{MASK}",
    ),
    (
        ("?", "&"),
        re.compile(
            r"(?i)([?&;](?:[\w-]{0,40}(?:token|secret|password|signature|credential)"
            r"|(?:[\w-]{0,40}[_-])?(?:key|sig)|apikey|auth|jwt)=)[^&\s'\"#;]{1,2000}"
        ),
        rf"\1{MASK}",
    ),
    (
        ("auth",),
        re.compile(
            r"(?i)(\b(?:proxy-)?authorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?"
            r"(?:(?:basic|bearer|token|digest|negotiate)\s{1,3})?)(?!-)[^\s'\",;]{1,4000}"
        ),
        rf"\1{MASK}",
    ),
    (
        ("bearer",),
        re.compile(r"(?i)(\bbearer\s{1,3})(?=[^\s'\"]{0,400}\d|[^\s'\"]{24})[\w.~+/=-]{8,}"),
        rf"\1{MASK}",
    ),
    (
        ("login",),  # a line of .netrc
        re.compile(r"(\bmachine\s{1,3}\S{1,200}\s{1,3}login\s{1,3}\S{1,200}\s{1,3}password\s{1,3})(?!-)\S{1,400}"),
        rf"\1{MASK}",
    ),
    (
        ("login", "password", "api"),
        re.compile(r"(?is)(?<![^\W_])(?:wandb[\w.]{0,20}\s{1,3}login|api[ _-]key|password)\b.*"),
        lambda found: HEX_KEY.sub(MASK, found[0]),
    ),
    (
        ("setenv",),  # of csh
        re.compile(r"(?i)(\bsetenv\s{1,3}\w{0,60}(?:key|token|secret|password|_pass|pwd)\s{1,3})[^\s$<*]\S{0,400}"),
        rf"\1{MASK}",
    ),
    (
        ("curl ",),
        re.compile(r"(\bcurl\b.{0,400}?\s(?:-u|--user)[\s=]{1,3}['\"]?[^\s:'\"]{0,200}:)(?!-)[^\s'\"]{1,400}"),
        rf"\1{MASK}",
    ),
    (
        ("cookie",),
        re.compile(r"(?i)(\b(?:set-)?cookie['\"]?\s{0,3}:\s{0,3}+['\"]?+)(?!\*)[^\n'\"]{1,4000}"),
        rf"\1{MASK}",
    ),
    (
        ("sshpass ", "mysql", "mariadb"),
        re.compile(r"(\bsshpass\s{1,3}-p\s{0,3}|\b(?:mysql|mysqldump|mariadb)\b.{0,200}?\s-p)(?![\s-])\S{1,400}"),
        rf"\1{MASK}",
    ),
)
"""Texts in lower case, of which one is in a text with such a secret; its shape, and what is left of it."""

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
    for hints, shape, masked in SHAPES:
        for hint in hints:  # a plain loop: see `_is_suspicious`
            if hint in lower:
                text = shape.sub(masked, text)
                break
    if "-" in lower:
        text = _mask_named(text, FLAG, flags=True)
    return _mask_named(text, ASSIGNED, flags=False)


def scrub_all(value: Any, name: str = "") -> Any:
    """The same for all texts in a plain value. Under a `name` of a secret all of a text is masked: that of a field, or
    the flag before it on a command line."""
    if isinstance(value, dict):
        return {scrub_all(key): scrub_all(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        lines = scrub("\n".join(value)).split("\n") if all(isinstance(one, str) for one in value) else value
        if len(lines) < len(value):  # a private key: each of its lines alone looks like any text
            return [*lines, *[MASK] * (len(value) - len(lines))]
        flags = (str(one) if str(one)[:1] == "-" else "" for one in value)
        known = lines if len(lines) == len(value) else value  # the name of a secret may stand a line before it
        return type(value)(map(scrub_all, known, chain([""], flags)))
    if not isinstance(value, str):
        return value
    return MASK if value and is_secret(name.lstrip("-"), name[:1] == "-") else scrub(value)


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
    return scrub(clean(output.decode("utf-8", "replace").strip().rpartition("\n")[2]))[:limit]


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
