"""The worker: does everything that may hang, one named operation after the other, and says before each what it is.

An operation is `(name, function)`; the function gives a list of lines (dicts without "v" and "t"), or None. A section
has `configure(spec)` and `operations(slow)`. What hangs is known by the parent from the mark, not by us.
"""

import os
import select
import time

from collectors.probe import ndjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol  # novm for mypy alone

    from collectors.probe.progress_mark import Mark

    Line = dict[str, Any]
    Operation = tuple[str, Callable[[], list[Line] | None]]

    class Section(Protocol):  # novm
        def configure(self, spec: Line) -> None: ...

        def operations(self, slow: bool) -> list[Operation]: ...


SECTIONS = (
    ("gpu", "gpu.nvml", "Gpus", None),
    ("host", "host", "Host", None),
    ("switches", "files.switches", "Switches", "switches"),
    ("logs", "files.logs", "Logs", "logs"),
    ("disks", "files.disks", "Disks", "disks"),
    ("checkpoints", "files.checkpoints", "Checkpoints", "checkpoints"),
)
"""Section, its module and class, and the spec's field without which it is not even loaded."""

PARTS = {
    "nvml": "gpu", "gpu": "gpu", "processes": "gpu", "xid": "gpu", "smi": "gpu",
    "host": "host", "network": "host", "infiniband": "host",
}  # fmt: skip
"""The first word of an operation's name → the part of the probe that it belongs to; others are their own."""

WORDS = {"nvml": "NVML", "gpu": "NVML", "smi": "nvidia-smi", "xid": "the Xid events"}

MERGED = {"gpu": "g", "gpus": "g", "disk": "d", "switch": "s"}
"""Lines of the same kind in one pass become one line: the field that is joined."""

ORDER = {"hello": 0, "gpus": 1}
"""Who answers comes first, then what its GPUs are, then their numbers."""

NOTED = {"gpus": "gpu", "hello": "gpu", "xid": "gpu", "log": "logs"}
"""After a line of this kind, the section's `state` goes to the parent: a new worker gets it by `restore`."""

SLOW_PASS = 0.2
"""After so many seconds what is known is sent, before the next operation."""


class Worker:
    """Runs the operations of all sections, for ever, or one of them once (`only`, a trial)."""

    def __init__(
        self, spec: bytes, stuck: "dict[str, list[Any]]", memory: "dict[str, str]", only: "str | None", mark: "Mark"
    ) -> None:
        self.stuck, self.memory, self.only, self.mark = stuck, memory, only, mark
        self.sections = {}  # type: dict[str, Section]
        self.queue = []  # type: list[Operation]
        self.last_run = {}  # type: dict[str, float]
        self.troubled = {}  # type: dict[str, tuple[str, str]]
        self.out = []  # type: list[Line]
        self.next_tick = self.next_slow = 0.0
        self.typed = b""
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)
        self.configure(spec)
        for module, section in self.sections.items():
            if hasattr(section, "restore") and module in memory:
                section.restore(ndjson.decoded(memory[module]))

    def configure(self, line: bytes) -> None:
        """Take a new spec: sections that are newly needed are loaded, the others told."""
        self.spec = spec = dict(ndjson.decoded(line.decode("utf-8")))  # type: ignore[call-overload]
        spec["mark"] = self.mark
        self.period, self.slow = float(spec.get("period", 2.0)), float(spec.get("slow", 30.0))
        for section, module, name, field in SECTIONS:
            if section in self.sections:
                self.sections[section].configure(spec)
            elif field is None or spec.get(field):
                code = __import__("collectors.probe." + module, fromlist=[name])
                self.sections[section] = getattr(code, name)(spec)
        self.next_tick = self.next_slow = 0.0

    def run(self) -> None:
        if self.only:
            self.try_once(self.only)
            return
        while True:
            now = time.monotonic()
            if now >= self.next_tick:
                self.flush()  # of a round that took longer than its period: its numbers are none of the next one's
                self.plan(now)
            if self.queue:
                self.perform(*self.queue.pop(0))
                if self.out and self.queue and time.monotonic() - now > SLOW_PASS:
                    self.flush()
                self.hear(0) if not self.queue or time.monotonic() - now > SLOW_PASS else None
            else:
                self.flush()
                self.hear(max(0.0, self.next_tick - time.monotonic()))

    def plan(self, now: float) -> None:
        """Queue what is due. GPUs and host first; what has not run for longest next, so that nothing starves."""
        slow = now >= self.next_slow
        self.next_tick = max(self.next_tick + self.period, now + self.period / 2)
        if slow:
            self.next_slow = now + self.slow - self.period / 2
        if self.stuck:
            self.say_stuck(now, slow)
        first = []  # type: list[Operation]
        later = []  # type: list[Operation]
        for module, section in self.sections.items():
            (first if module in ("gpu", "host") else later).extend(section.operations(slow))
        fresh = {name for name, _ in first + later}
        later += [operation for operation in self.queue if operation[0] not in fresh]
        later.sort(key=lambda operation: self.last_run.get(operation[0], 0.0))
        self.queue = [operation for operation in first + later if operation[0] not in self.stuck]

    def perform(self, name: str, function: "Callable[[], list[Line] | None]") -> None:
        """Run one operation under the mark. What it raises costs its own line and nothing else."""
        self.mark.start(name.encode("utf-8", "surrogateescape"))
        try:
            lines = function()
        except Exception as error:
            lines = self.trouble(name, "%s: %s: %s" % (name, type(error).__name__, error))
        else:
            if name in self.troubled:
                lines = (lines or []) + self.trouble(name, None)
        self.mark.finish()
        self.last_run[name] = time.monotonic()
        if name == "nvml" and self.sections["gpu"].is_open:  # type: ignore[attr-defined]
            self.next_tick = self.next_slow = 0.0  # its GPUs are known now
        for line in lines or ():
            self.add(line)

    def trouble(self, name: str, text: "str | None") -> "list[Line]":
        """A line that says a part fails, or that it is well again, when that is news."""
        part = PARTS.get(name.partition(":")[0], name.partition(":")[0])
        before = self.troubled.pop(name, None)
        if text is not None:
            self.troubled[name] = (part, text)
            return [] if before == (part, text) else [{"k": "trouble", "part": part, "text": text}]
        others = [other for where, other in self.troubled.values() if where == part]
        return [{"k": "trouble", "part": part, "text": others[-1] if others else None}]

    def add(self, line: "Line") -> None:
        field = MERGED.get(line["k"], "")
        for earlier in self.out if field else ():
            if earlier["k"] == line["k"]:
                line[field] = earlier[field] + line[field]
                earlier.update(line)
                return
        self.out.append(line)

    def flush(self) -> None:
        """Send what is known, and after it the notes from which the next worker would go on."""
        if not self.out:
            return
        now = round(time.time(), 3)
        self.out.sort(key=lambda line: ORDER.get(line["k"], 2))
        for line in self.out:
            if line["k"] == "gpu":
                line["g"].sort(key=lambda row: row[0])
            line.setdefault("t", now)
            line["v"] = 1
        texts = [ndjson.encoded(line) for line in self.out]
        kinds = {line["k"] for line in self.out}
        for module in {NOTED[kind] for kind in kinds if kind in NOTED}:
            section = self.sections.get(module)
            if section is not None and hasattr(section, "state"):
                texts.append("!%s %s" % (module, ndjson.encoded(section.state())))
        self.out = []
        self.write("\n".join(texts))

    def write(self, text: str) -> None:
        data = (text + "\n").encode()
        while data:
            data = data[os.write(1, data) :]

    def hear(self, timeout: float) -> None:
        """Wait for the parent's orders: S a spec, K what is stuck. Its end is ours."""
        if not self.poll.poll(1000 * timeout):
            return
        data = os.read(0, 65536)
        if not data:
            os._exit(0)
        lines = (self.typed + data).split(b"\n")
        self.typed = lines.pop()
        for line in lines:
            if line[:1] == b"S":
                self.configure(line[1:])
            elif line[:1] == b"K":
                self.learn(ndjson.decoded(line[1:].decode()))  # type: ignore[arg-type]

    def learn(self, stuck: "dict[str, list[Any]]") -> None:
        """The parent says what is stuck now. What is no longer stuck is asked again at once, and its trouble ends."""
        freed = [name for name in self.stuck if name not in stuck]
        self.stuck = stuck
        self.next_tick = self.next_slow = 0.0
        for name in freed:
            for line in self.trouble(name, None):
                self.add(line)

    def say_stuck(self, now: float, slow: bool) -> None:
        """A row for everything that hangs, again and again, so that it does not look like old data."""
        for name, (since, why) in self.stuck.items():
            text = "no answer for %d s" % (now - since) if why == "hung" else "reading it crashes"
            if slow:
                for line in self.stuck_lines(name, why, text):
                    self.add(line)
            for section in self.sections.values():
                for line in section.stuck(name, text) if hasattr(section, "stuck") else ():
                    self.add(line)

    def stuck_lines(self, name: str, why: str, text: str) -> "list[Line]":
        word, _, rest = name.partition(":")
        if word == "disk":
            state = "hung" if why == "hung" else "error"
            return [{"k": "disk", "d": [{"path": rest, "state": state, "error": text}]}]
        if word == "switch":
            return [{"k": "switch", "s": [{"path": rest, "exists": None, "error": text}]}]
        if word == "log":
            return [{"k": "log", "id": rest, "error": text}]
        if word == "ckpt":
            return [{"k": "ckpt", "path": rest, "error": text}]
        return self.trouble(name, "%s: %s" % (WORDS.get(word, word), text))

    def try_once(self, only: str) -> None:
        """A trial of one stuck operation. That we come back is the answer: its lines are the main worker's to say."""
        first = ["nvml"] if only.startswith(("gpu:", "xid", "processes")) else []
        for wanted in [*first, only]:
            for section in self.sections.values():
                for name, function in section.operations(True):
                    if name == wanted:
                        self.perform(name, function)
        self.write("!done")
