"""What launchers and loggers put in front of a line: times, ranks, levels, the names of loggers and hosts. Pure."""

from __future__ import annotations

import re

PREFIXES = 8
LONGEST = 300
"""Characters of all prefixes of a line."""

LEVEL = r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|TRACE|SUCCESS|NOTICE|debug|info|warning|error)\b"
DATE = (
    r"(?:\d{4}[-/.]\d\d[-/.]\d\d|\d\d[-/]\d\d(?:[-/]\d{2,4})?|\d{8}"
    r"|[A-Z][a-z]{2} [ \d]\d(?: \d{4})?|\d\d [A-Z][a-z]{2})"
)
CLOCK = r"\d\d:\d\d(?::\d\d)?(?:[.,-]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?: (?:AM|PM|UTC)\b)?"
TIME = rf"(?:{DATE}[T ,_-]{{1,2}})?{CLOCK}"
SOURCE = r"[\w./-]{0,200}\w\.(?:py|cc|cpp)(?:[:, ] ?\d{1,6})?(?::\w{1,80}\b)?"
"""`trainer.py:123:train`"""
LOGGER = r"(?:__main__|root|\w{1,40}(?:\.\w{1,40}){1,8})"
WORKER = r"(?i:(?:default|rank|worker|node|host|gpu|device|proc|process|local[_ ]rank)[ :_=-]{0,3}\d{1,6})"
TAGGED = rf"(?:\w{{1,20}} [A-Z] )?(?:{TIME}|{LEVEL}|{SOURCE}|{LOGGER}|{WORKER})"
COUNTER = r"(?i:\w{0,20}(?:epoch|step|iter|it|batch|update|loss|ep|lr):)"
OF_TRAINING = r"(?i:\w{0,20}(?:epoch|step|iter|it|batch|update|train|loss|val|eval|ep|fold|lr))"
"""How a function or a host is not called, but a number is."""
KINDS = (
    rf"\[ {{0,4}}(?!\d+/\d+ [\d:]+(?: <|, Epoch)){TAGGED}(?:[ |][^\]\[=]{{0,120}})?\][:>]?",
    r"\[\d{1,6},\d{1,6}\]<std\w{3}>:|<std\w{3}>:",  # mpirun
    rf"{TIME}(?=[\s|\]:-])[:|]?|\d{{10}}(?:\.\d{{1,9}})?(?=\s)",
    r"[IWEF]\d{4,8} \d\d:\d\d:\d\d(?:\.\d{1,9})?\s{1,8}\d{1,20} (?:\w{1,40} )?[\w.-]{1,80}\.\w{1,4}:\d{1,6}\]",  # glog
    r"\([\w.-]{1,60} pid=[^()]{1,80}\)",  # Ray
    rf"\((?:{SOURCE}|\w{{1,40}}:\d{{1,6}})\):?|(?:[|-] )?{SOURCE}[\]:)]?(?=\s)",
    rf"(?:- )?{LEVEL}:(?:{LOGGER}|\w{{1,60}}):",  # INFO:root:
    rf"(?:[|-] {{0,2}})?(?:(?!{LEVEL})\w[\w-]{{0,40}}[ \t](?:- )?)?{LEVEL} {{0,4}}[:|-]?"
    rf"(?: ?(?<=\s)(?!{COUNTER})[a-z_.]{{2,60}}:\d{{1,6}}(?=\s))?",
    r"(?:[|-] )?(?:\w[\w.]{0,120}|<\w{1,20}>):[<\w>]{1,80}:\d{1,6} -",  # loguru
    rf"(?:[|-] {{0,2}})?{LOGGER}(?: [|-](?=\s)|:(?= [A-Za-z]{{4}}| [\[{{])|(?= {LEVEL}))",
    rf"(?!{OF_TRAINING})[a-z](?=[\w.-]{{0,60}}\d)(?:"
    r"\w{0,40}[.-][\w.-]{1,80}(?: logs)?(?:\s{1,20}\||:)(?=\s)(?!\s*\d{1,3}%)"  # a pod, no file that is downloaded
    r"|\w{1,40}(?:\s{1,20}\||:)(?=\s{1,20}[^\s\d]))",  # a host
    r"\d{1,5}:(?=\s)(?!\s{1,8}(?:-?\d+\.\d+,\s|learn[: ])|\s[\w./]{0,20}loss(?!\w{0,40},))",  # srun --label, no counter
    r"[\w.-]{1,64} [\w./-]{1,40}\[\d{1,8}\]:|(?<=\S )(?:->?|>>)(?=\s)",  # journald
)
PREFIX = re.compile(rf"[ \t]{{0,4}}(?:{'|'.join(KINDS)})[ \t]?")
"""One thing in front of a line, with one blank behind it: what follows may be indented."""


def without_prefix(line: str, message: re.Pattern[str] | None = None) -> str:
    """The line without what launchers and loggers put in front. Its indentation stays.

    `message` matches the start of messages that look like a prefix.
    """
    at = 0
    for _ in range(PREFIXES):
        found = PREFIX.match(line, at, LONGEST)
        if found is None or (message is not None and message.match(line, at) is not None):
            break
        at = found.end()
    return line[at:]
