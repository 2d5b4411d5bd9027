"""Takes the lines of a program out of the records in which containers and loggers keep them. Runs on the node, too.

docker's and Fluent Bit's JSON, JSON and logfmt of structured loggers. The time of a record stays in front of its line.
"""

import re

from collectors.probe import ndjson
from collectors.probe.annotations import Mapping

MESSAGES = "log", "message", "msg"
TIMES = "time", "timestamp", "@timestamp", "ts", "asctime"
TRACEBACKS = "exc_info", "exc_text", "traceback", "exception", "stack_trace", "stacktrace"
MEASURED = "loss", "step", "iter", "epoch"
"""Parts of names of values that make a record a step line of its own."""

LOGFMT = re.compile(rb"(?:time|timestamp|ts|t|level|lvl|severity|logger|caller)=\S")
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
        data, count = UNFINISHED.subn(_in_one, data)
    return data


def _in_one(found: "re.Match[bytes]") -> bytes:
    return found.group(2) + b" " + found.group(1) if found.group(2) else b""


def unwrapped(line: bytes) -> "list[bytes]":
    """The lines that a record holds; the line itself if it is none."""
    is_logfmt = b"=" in line and LOGFMT.match(line)
    if line[:1] != b"{" and not is_logfmt:
        return [line]
    text = line.decode("utf-8", "replace")
    try:
        record = {name: _value(value) for name, value in FIELD.findall(text)} if is_logfmt else ndjson.decoded(text)
    except (ValueError, TypeError, RecursionError):  # NaN, and what is nested without an end
        return [line]
    return _lines(record) if isinstance(record, dict) and _has_message(record) else [line]


def _value(text: str) -> str:
    """A value of logfmt. Go writes an escape as `\\x1b`, which JSON does not know."""
    return str(ndjson.decoded(text.replace("\\x", "\\u00"))) if text[:1] == '"' else text


def _has_message(record: "Mapping[str, object]") -> bool:
    """Whether a record has a message, and not the values of a step beside its title."""
    values = [name.lower() for name, value in record.items() if NUMBER.match(str(value))]
    is_step = any(part in name for name in values for part in MEASURED)
    return not is_step and any(isinstance(record.get(name), str) for name in MESSAGES)


def _lines(record: "Mapping[str, object]") -> "list[bytes]":
    texts = [value for value in map(record.get, (*MESSAGES, *TRACEBACKS)) if isinstance(value, str)]
    at = next((value for value in map(record.get, TIMES) if isinstance(value, str)), "")
    lines = "\n".join(text.rstrip("\n") for text in texts).split("\n")
    return [(at + " " * bool(at) + line).encode("utf-8", "replace") for line in lines]
