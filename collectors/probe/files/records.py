"""Takes the lines of a program out of the records in which containers and loggers keep them. Runs on the node, too.

docker's and Fluent Bit's JSON, JSON and logfmt of structured loggers, also inside one another and behind what a
collector puts in front. That and the time of a record stay in front of its line.
"""

import re

from collectors.probe import ndjson
from collectors.probe.annotations import Mapping

MESSAGES = "log", "message", "msg", "MESSAGE"
"""The last one is journald's."""
TIMES = "time", "timestamp", "@timestamp", "ts", "asctime", "__REALTIME_TIMESTAMP"
TRACEBACKS = "exc_info", "exc_text", "traceback", "exception", "stack_trace", "stacktrace"
MEASURED = "loss", "step", "iter", "epoch"
"""Parts of names of values that make a record a step line of its own."""

RECORD = re.compile(
    rb"((?:(?:\d{4}-\d\d-\d\d[T ][\d:.,]{5,18}(?:Z|[+-]\d\d:?\d\d)?|[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}"  # a time
    rb"|\d{10,19}(?:\.\d{1,9})?(?= )|std(?:out|err)(?: F)?|[ \d]{0,4}\d:"  # seconds since 1970, CRI, srun --label
    rb"|[\w.-]{1,64} [\w./-]{1,40}\[\d{1,8}\]:|\[[^\[\]{}]{1,120}\]:?|<std\w{3}>:"  # journald, kubectl, torchrun
    rb"|[a-z][\w.-]{0,120} {1,20}\||\([^()]{0,60}(?:\([^()]{0,80}\))?[^()]{0,60}pid=[^()]{1,80}\)"  # compose, Ray
    rb"|(?:[a-z][a-z0-9-]{0,62} )?[a-z0-9][a-z0-9.-]{0,120}-(?:\d{1,5}|[b-df-hj-np-tv-z2-9]{5}) [a-z][a-z0-9-]{0,62}"
    rb"|\{(?:[\w.-]{1,60}=\"[^{}]{0,400})?\}(?= )) ?){0,5})"  # stern, Loki
    rb"(?:\{|((?:time|timestamp|ts|t|level|lvl|severity|logger|caller)=\S))"
)
"""What collectors put in front of a record, and the beginning of the record: JSON, or logfmt."""
FIELD = re.compile(r'([\w.@-]{1,60})=("(?:[^"\\]|\\.)*"|[^\s"]*)')

NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?$")

UNFINISHED = re.compile(
    rb'(?<!\\n)","stream":"std(?:out|err)"[^\n]{0,300}\}\n\{"log":"'  # docker
    rb"|(?<= std(?:out|err) )P ([^\n]*)\n\S{20,40} std(?:out|err) ([PF]) "  # CRI
)
"""The end of a record of an unfinished line, with the beginning of the next one."""


def joined(data: bytes) -> bytes:
    """Data in which lines that stand in several records, because they are long, stand in one."""
    count = int(b" P " in data or b'{"log":"' in data)
    while count:
        data, count = UNFINISHED.subn(lambda found: found[2] + b" " + found[1] if found[2] else b"", data)
    return data


def unwrapped(line: bytes) -> "list[bytes]":
    """The lines that a record holds, with what is in front of it; the line itself if it is none. Quotes inside quotes
    double their length, so records inside records end soon."""
    found = RECORD.match(line) if b"{" in line or b"=" in line else None
    if not found:
        return [line]
    head, is_logfmt = found.groups()
    text = line[len(head) :].decode("utf-8", "replace")
    try:
        record = {name: _value(value) for name, value in FIELD.findall(text)} if is_logfmt else ndjson.decoded(text)
    except (ValueError, TypeError, RecursionError):  # NaN, and what is nested without an end
        return [line]
    if not isinstance(record, dict) or not _has_message(record):
        return [line]
    return [head + text for held in _lines(record) for text in unwrapped(held)]


def _value(text: str) -> str:
    """A value of logfmt. Go writes an escape as `\\x1b`, which JSON does not know."""
    return str(ndjson.decoded(text.replace("\\x", "\\u00"))) if text[:1] == '"' else text


def _has_message(record: "Mapping[str, object]") -> bool:
    """Whether a record has a message, and not the values of a step beside its title."""
    values = [name.lower() for name, value in record.items() if NUMBER.match(str(value))]
    is_step = any(part in name for name in values for part in MEASURED)
    return not is_step and any(isinstance(record.get(name), str) for name in _messages(record))


def _messages(record: "Mapping[str, object]") -> "tuple[str, ...]":
    """The names of its messages. logcli has a `line` beside `labels`; elsewhere a `line` is one of the source."""
    return (*MESSAGES, "line") if "labels" in record else MESSAGES


def _lines(record: "Mapping[str, object]") -> "list[bytes]":
    texts = [value for value in map(record.get, (*_messages(record), *TRACEBACKS)) if isinstance(value, str)]
    at = next((value for value in map(record.get, TIMES) if isinstance(value, str)), "")
    lines = "\n".join(text.rstrip("\n") for text in texts).split("\n")
    return [(at + " " * bool(at) + line).encode("utf-8", "replace") for line in lines]
