"""What launchers, loggers and collectors of logs put in front of a line: times, ranks, levels, hosts, pods. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

PREFIXES = 8
LONGEST = 300
"""Characters of all prefixes of a line."""

LEVEL = r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|TRACE|SUCCESS|NOTICE|debug|info|warning|error)\b"
DATE = (
    r"(?:\d{4}[-/.]\d\d[-/.]\d\d|\d\d[-/]\d\d(?:[-/]\d{2,4})?|\d{8}"
    r"|[A-Z][a-z]{2} [ \d]\d(?: \d{4})?|\d\d [A-Z][a-z]{2})"
)
CLOCK = r"\d\d:\d\d(?::\d\d)?(?:[.,-]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?: (?:AM|PM|UTC)\b)?"
EPOCH = r"\d{10}(?:\d{3}|\d{6}|\d{9}|\.\d{1,9})?"
"""Seconds since 1970, or milliseconds, or less."""
TIME = rf"(?:{DATE}[T ,_-]{{1,2}})?{CLOCK}"
SOURCE = (
    r"[\w./-]{0,200}\w\.(?:py|cc|cpp)"
    r"(?:(?: \w{1,60})?[ -]?\[(?:line:?)? ?\d{1,6}\]|(?:[:, ] ?\d{1,6})?(?::\w{1,80}\b)?)"
)
"""`trainer.py:123:train`, `trainer.py[line:123]`, `trainer.py train [line:123]`"""
LOGGER = r"(?:__main__|root|\w{1,40}(?:\.\w{1,40}){1,8})"
WORKER = r"(?i:(?:default|rank|worker|node|host|gpu|device|proc|process|local[_ ]rank)[ :_=-]{0,3}\d{1,6})"
TAGGED = rf"(?:\w{{1,20}} [A-Z] )?(?:{TIME}|{EPOCH}(?=\])|{LEVEL}|{SOURCE}|{LOGGER}|{WORKER})"

COUNTER = r"(?i:\w{0,20}(?:epoch|step|iter|it|batch|update|loss|ep|lr):)"
OF_TRAINING = r"(?i:\w{0,20}(?:epoch|step|iter|it|batch|update|train|loss|val|eval|ep|fold|lr))"
"""How a function, a host or a pod is not called, but a number is."""
ORDINAL = r"-(?:\d{1,5}|[b-df-hj-np-tv-xz0]{5})"
"""The end of a pod's name in Kubernetes: its ordinal, or five random characters; digits are 0 here."""
VALUE = r"[-+.]?\d(?!\d{0,2}%|\d{0,8}/\d|\d{3}[-/]\d\d|\d:\d\d)"
"""The beginning of a number that is no bar, ratio, date or clock."""
REPLICA = (
    r"(?:[a-z0-9][a-z0-9.-]{0,120}-(?:(?=0{0,4}[b-z])[b-df-hj-np-tv-xz0]{5}|(?:worker|master|launcher)-\d{1,5})"
    rf"|(?:worker|master|launcher|train)-\d{{1,5}}(?! train +{VALUE}))"
)
"""A pod of a training job: its name ends in random characters or in the role of a replica."""
CONTAINER = r"(?:pytorch|tensorflow|jax|mpi|main|(?:pre)?train(?:er|ing)?|worker|master|launcher)"
HOST = r"[a-z](?=[\w.-]{0,60}\d)\w{0,40}[.-][\w.-]{1,80}"
NODE = (
    r"(?:(?:node|nid|gpu|host|compute|worker|server|dgx)\d{1,6}|[a-z]\w{0,30}\d{3,6}"
    r"|[a-z](?=\w{0,40}\d)\w{0,40}(?=:\s{1,20}[^\s\d]))"
)
"""A host's name without a dash or a dot. Numbers have such names, too."""
LABEL = r"[\w.-]{1,60}=\"(?:[^\"\\]|\\.){0,200}\""
IDENTIFIER = r"[\w./-]{1,40}"

KINDS: tuple[tuple[str, str], ...] = (
    ("kubectl", r"\[pod/(?P<pod>[\w.-]{1,120}/[\w.-]{1,80})\]"),
    (
        "stern",
        rf"(?!{OF_TRAINING}-\d{{1,5}} )(?P<stern>[a-z0-9][a-z0-9.-]{{0,120}}{ORDINAL}) "
        rf"(?!{OF_TRAINING}\b)[a-z][a-z0-9-]{{0,62}}(?= )(?! [:=])",
    ),
    ("stern, a replica", rf"(?:[a-z][a-z0-9-]{{0,62}} )?(?P<replica>{REPLICA}) {CONTAINER}(?= )(?! [:=])"),
    ("rank", r"\[ {0,4}(?:rank|default|gpu|local_rank)[ :]?(?P<rank>\d{1,5})\]:?"),
    ("number", r"\[(?P<number>\d{1,5})\](?::(?!\s+(?:train|valid|test|eval))|(?=\s+(?:[A-Z]|File \"|\d{1,3}%|\{')))"),
    ("role", rf"\[(?!{OF_TRAINING}\d)[a-z][\w.-]{{0,40}}(?:\d|:\d{{1,5}})\]:|\[[a-z]{{1,20}}\](?= {DATE})"),
    ("tagged", rf"\[ {{0,4}}(?!\d+/\d+ [\d:]+(?: <|, Epoch)){TAGGED}(?:[ |][^\]\[=]{{0,120}})?\][:>]?"),
    ("nanotron", rf"\[{LEVEL}\|[^\]\[]{{1,120}}\]:?"),
    (
        "mpirun",
        rf"(?:[A-Z][a-z]{{2}} {DATE} {CLOCK} \d{{4}})?"  # --timestamp-output
        r"(?:\[(?:[\w.-]{1,80}@)?(?P<mpi>\d{1,6},\d{1,6})\])?<std\w{3}>:",
    ),
    ("rfc5424", rf"<\d{{1,3}}>\d {TIME}(?: [\w./:-]{{1,80}}){{4}} (?:-|\[[^\]]{{0,200}}\])(?=\s)"),
    (
        "syslog",
        rf"[A-Z][a-z]{{2}} [ \d]\d {CLOCK} (?!{OF_TRAINING}\w* )[\w.-]{{1,64}} (?!{COUNTER}){IDENTIFIER}"
        r"(?:\[\d{1,8}\])?:(?=\s)",
    ),
    ("short-full", rf"[A-Z][a-z]{{2}} {TIME} [A-Z]{{3,5}}(?=\s)"),  # journald
    ("time", rf"{TIME}(?=[\s|\]:-])[:|]?|{EPOCH}(?=\s)"),
    ("cri", r"(?:stdout|stderr)(?: [FP](?=\s)|:|(?=\s))"),
    ("loki", rf"(?:(?<=[Z0] )\{{\}}|\{{{LABEL}(?:, ?{LABEL}){{0,20}}\}})(?=\s)"),
    (
        "glog",
        r"[IWEF]\d{4,8} \d\d:\d\d:\d\d(?:\.\d{1,9})?\s{1,8}\d{1,20} (?:\w{1,40} )?[\w.-]{1,80}\.\w{1,4}:\d{1,6}\]",
    ),
    ("ray", r"\((?:[^()]|\([^()]{0,80}\)){0,120}\bpid=(?P<pid>\d{1,10})[^()]{0,80}\)"),
    ("source", rf"\((?:{SOURCE}|\w{{1,40}}:\d{{1,6}})\):?|(?:[|-] )?{SOURCE}[\]:)]?(?=\s)"),
    ("logging", rf"(?:- )?{LEVEL}:(?:{LOGGER}|[\w-]{{1,60}}):"),  # INFO:root:
    (
        "level",
        rf"(?:[|-] {{0,2}})?(?:(?!{LEVEL})\w[\w-]{{0,40}}[ \t](?:- )?)?{LEVEL} {{0,4}}[:|-]?"
        rf"(?: ?(?<=\s)(?:(?!{COUNTER})[a-z_.]{{2,60}}:\d{{1,6}}"
        rf"|(?:train(?!: ?\{{)|(?!{COUNTER}|(?i:\w{{0,20}}(?:train|val|eval|test|loss)))[a-z_.]{{2,60}})"
        r":(?!\s{1,4}[-+\d]))(?=\s))?",
    ),
    ("loguru", r"(?:[|-] )?(?:\w[\w.]{0,120}|<\w{1,20}>):[<\w>]{1,80}:\d{1,6} -"),
    ("logger", rf"(?:[|-] {{0,2}})?{LOGGER}(?: [|-](?=\s)|:(?= [A-Za-z]{{4}}| [\[{{])|(?= {LEVEL}))"),
    ("service", rf"(?!{OF_TRAINING}\s)(?P<service>{HOST}|[a-z]\w{{0,40}}_\d{{1,4}})(?: logs)?\s{{1,20}}\|(?=\s)"),
    ("container", rf"(?!{OF_TRAINING}\s)(?P<container>[a-z][\w.-]{{0,60}})\s{{1,20}}\|(?=\s{{1,20}}[A-Za-z\"'(])"),
    # no file that is downloaded: model-00001.safetensors:  45%|████▌     | 1.2G/2.7G
    ("host", rf"(?!{OF_TRAINING})(?P<host>{HOST}):(?=\s)(?!\s*\d{{1,3}}%.{{0,200}}\d[kMG]B?/)"),
    ("node", rf"(?!{OF_TRAINING})(?P<node>{NODE}):(?=\s)"),
    ("stream", r"[a-z][\w.+-]{1,62}/[\w.-]{0,62}\d(?=\s+(?:[^\s|\d]|\d\d[-/\d]|\d{1,3}%))"),  # nemo-run, CloudWatch
    (
        "srun",
        r"(?P<task>\d{1,5}):(?=\s)(?!\s{1,8}(?:-?(?:\d+\.\d+|nan),\s|learn[: ]|done \d|\[[A-Z] loss: )"
        r"|\s(?!train_)(?:train )?[\w./]{0,20}loss(?!\w{0,40},|\s{4,40}[\d.]{1,12}\s*$))",
    ),
    (
        "numbered",
        rf"(?=[ \d]{{6}}\t) {{1,5}}\d{{1,5}}\t|\d{{6,8}}\t(?![\w.+-]*\t|{VALUE}\S*$)|\d{{1,7}}:(?=[A-Za-z\[({{])",
    ),  # cat, grep -n
    ("journald", rf"[\w.-]{{1,64}} {IDENTIFIER}\[\d{{1,8}}\]:|(?<=\S )(?:->?|>>)(?=\s)"),
)
"""Name and pattern. A named group is what the lines of one process share."""
EXCEPTION = (
    r"[\w.]{0,100}(?:Error|Exception|Warning|Interrupt|socket\.timeout"
    r"|(?<=[a-z])(?:Timeout|Refused|Unavailable|NotFound|Invalid|Expired|Exhausted|Crashed))\b"
)
"""An exception, whose module looks like the name of a logger."""
PREFIX = re.compile(
    rf"[ \t]{{0,4}}(?!{EXCEPTION})"
    rf"(?:{'|'.join(pattern for _, pattern in KINDS)})[ \t]?"
)
"""One thing in front of a line, with one blank behind it: what follows may be indented."""

REPEATED = re.compile(r" \[repeated \d{1,9}x across cluster\].{0,400}$")
"""What Ray puts behind a line that several workers have written."""

SHAPE = str.maketrans("123456789–—", "0" * 9 + "--")
"""To what a prefix of the same shape has: digits are 0 there, and a dash of any length is `-`."""


class Prefix(NamedTuple):
    """Where the message of a line begins, and where its writer is named: a rank, a host, a pod."""

    end: int
    writer: slice | None


def prefix_of(line: str) -> Prefix:
    """What launchers and loggers put in front of a line."""
    return _prefix_of_shape(line[:LONGEST].translate(SHAPE))


@lru_cache(4096)
def _prefix_of_shape(line: str) -> Prefix:
    end, writer = 0, None
    for _ in range(PREFIXES):
        found = PREFIX.match(line, end)
        if found is None:
            break
        if found.lastgroup is not None:
            writer = slice(*found.span(found.lastgroup))
        end = found.end()
    return Prefix(end, writer)


def without_prefix(line: str) -> str:
    """The line without what launchers and loggers put around it. Its indentation stays."""
    return REPEATED.sub("", line[prefix_of(line).end :])
