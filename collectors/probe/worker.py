"""The worker: runs everything that may hang, one named operation after the other, each marked before it starts.

An operation is `(name, function)`; the function returns a list of lines (dicts without "v" and "t"), or None. A section
has `configure(spec)` and `operations(slow)`. The parent detects a hang by the mark.
"""

import os
import select
import sys
import time

from collectors.probe.stdlib import Any, Callable, Line, Operation, from_json, to_json
from collectors.probe.worker_process import Mark, write

SECTIONS = (
    ("gpu", "gpu.nvml", "Gpus", None),
    ("host", "host", "Host", None),
    ("ranks", "gpu.ranks", "Ranks", "ranks"),
    ("switches", "files.switches", "Switches", "switches"),
    ("logs", "files.logs", "Logs", "logs"),
    ("disks", "files.disks", "Disks", "disks"),
    ("checkpoints", "files.checkpoints", "Checkpoints", "checkpoints"),
    ("contents", "files.contents", "Contents", "files"),
    ("receipts", "files.receipts", "Receipts", "receipts"),
    ("wandb", "files.metrics", "MetricFiles", "wandb"),
)
"""Section, its module and class, and the spec's field without which the section is not loaded."""

PARTS = {
    "nvml": "gpu", "gpu": "gpu", "processes": "gpu", "xid": "gpu", "smi": "gpu", "amd": "gpu", "amdgpu": "gpu",
    "amdsmi": "gpu",
    "host": "host", "network": "host", "infiniband": "host", "ranks": "host",
}  # fmt: skip
"""By the start of an operation's name: its part of the probe. Other operations are parts of their own."""

TITLES = {"nvml": "NVML", "gpu": "NVML", "smi": "nvidia-smi", "xid": "the Xid events", "amd": "amdgpu"}

MERGED = {"gpu": "g", "gpus": "g", "disk": "d", "switch": "s"}
"""Lines of the same kind in one pass become one line, joined by this field."""

ORDER = {"hello": 0, "gpus": 1}
"""The greeting comes first, then the facts of the GPUs, then their numbers."""

STATE_AFTER = {"gpus": "gpu", "hello": "gpu", "xid": "gpu", "log": "logs"}
"""After a line of this kind, the section's `state` goes to the parent; `restore` gives it to the next worker."""

SLOW_PASS = 0.2
"""After this many seconds the collected lines are sent before the next operation."""


def receive_modules(packed: str) -> None:
    """Make modules importable that came with a spec: compressed and in base85, as `name NUL text NUL …`."""
    import base64
    import zlib

    parts = zlib.decompress(base64.b85decode(packed)).split(b"\0")
    for finder in sys.meta_path:
        if hasattr(finder, "texts"):
            finder.texts.update((name.decode(), text) for name, text in zip(parts[::2], parts[1::2]))  # noqa: B905


class Worker:
    """Runs the operations of all sections forever, or one of them once (`trial_of`)."""

    def __init__(
        self, spec: bytes, stuck: "dict[str, list[Any]]", states: "dict[str, str]", trial_of: "str | None", mark: Mark
    ) -> None:
        self.stuck, self.trial_of, self.mark = stuck, trial_of, mark
        self.sections = {}  # type: dict[str, Any]
        self.queue: "list[Operation]" = []
        self.last_run = {}  # type: dict[str, float]
        self.troubles = {}  # type: dict[str, tuple[str, str]]
        self.output = []  # type: list[Line]
        self.next_tick = self.next_slow = 0.0
        self.buffer = b""
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)
        self.configure(spec)
        for name in states:
            if name in self.sections:
                self.sections[name].restore(from_json(states[name]))

    def configure(self, line: bytes) -> None:
        """Apply a new spec: load the sections that it newly needs, and configure the others."""
        spec = dict(from_json(line.decode("utf-8")), mark=self.mark)  # type: ignore[call-overload]
        if spec.get("modules"):
            receive_modules(spec["modules"])
        self.period, self.slow_period = float(spec.get("period", 2.0)), float(spec.get("slow", 30.0))
        for section, module, name, field in SECTIONS:
            if section in self.sections:
                self.sections[section].configure(spec)
            elif field is None or spec.get(field):
                code = __import__("collectors.probe." + module, fromlist=[name])
                self.sections[section] = getattr(code, name)(spec)
        self.next_tick = self.next_slow = 0.0

    def run(self) -> None:
        if self.trial_of:
            self.run_trial(self.trial_of)
            return
        while True:
            now = time.monotonic()
            if now >= self.next_tick:
                self.flush()  # a round that took longer than its period: its numbers do not belong to the next one
                self.plan(now)
            if not self.queue:
                self.flush()
                self.read_requests(max(0.0, self.next_tick - time.monotonic()))
                continue
            self.perform(*self.queue.pop(0))
            is_slow = time.monotonic() - now > SLOW_PASS
            if self.output and self.queue and is_slow:
                self.flush()
            if not self.queue or is_slow:
                self.read_requests(0)

    def plan(self, now: float) -> None:
        """Queue what is due. GPUs and host first; then what has waited longest, so that nothing starves. What a slow
        round has not come to is still due as that round has it: a quick one reads less under the same name."""
        slow = now >= self.next_slow
        self.next_tick = max(self.next_tick + self.period, now + self.period / 2)
        if slow:
            self.next_slow = now + self.slow_period - self.period / 2
        self.report_stuck(now, slow)
        first = []  # type: list[Operation]
        later = []  # type: list[Operation]
        for name, section in self.sections.items():
            (first if name in ("gpu", "host") else later).extend(section.operations(slow))
        left = {} if slow else dict(self.queue)
        first.sort(key=lambda operation: operation[0] not in left)
        due = {name for name, _ in first + later}
        later += [operation for operation in self.queue if operation[0] not in due]
        later.sort(key=lambda operation: self.last_run.get(operation[0], 0.0))
        self.queue = [(name, left.get(name, one)) for name, one in first + later if name not in self.stuck]

    def perform(self, name: str, function: "Callable[[], list[Line] | None]") -> None:
        """Run one operation under the mark. An exception costs its own line and nothing else."""
        self.mark.start(name.encode("utf-8", "surrogateescape"))
        try:
            lines = function()
        except Exception as error:
            lines = self.trouble(name, "%s: %s: %s" % (name, type(error).__name__, error))
        else:
            if name in self.troubles:
                lines = (lines or []) + self.trouble(name, None)
        self.mark.finish()
        self.last_run[name] = time.monotonic()
        gpus = self.sections["gpu"]
        if (name == "nvml" and gpus.is_open) or (name == "amdgpu" and gpus.has_new):
            self.next_tick = self.next_slow = 0.0  # its GPUs are known now
        self.add(lines or [])
        if lines and lines[-1].pop("again", False):
            self.queue.append((name, function))

    def trouble(self, name: str, text: "str | None") -> "list[Line]":
        """The line that a part fails, or works again; none if that was reported before."""
        part = PARTS.get(name.partition(":")[0], name.partition(":")[0])
        before = self.troubles.pop(name, None)
        if text is not None:
            self.troubles[name] = (part, text)
            return [] if before == (part, text) else [{"k": "trouble", "part": part, "text": text}]
        others = [other for other_part, other in self.troubles.values() if other_part == part]
        return [{"k": "trouble", "part": part, "text": others[-1] if others else None}]

    def add(self, lines: "list[Line]") -> None:
        for line in lines:
            field = MERGED.get(line["k"])
            earlier = next((one for one in self.output if field and one["k"] == line["k"]), None)
            if field is None or earlier is None:
                self.output.append(line)
            else:
                line[field] = earlier[field] + line[field]
                earlier.update(line)

    def flush(self) -> None:
        """Send the collected lines, and after them the state with which the next worker would continue."""
        if not self.output:
            return
        now = round(time.time(), 3)
        self.output.sort(key=lambda line: ORDER.get(line["k"], 2))
        for line in self.output:
            if line["k"] == "gpu":
                line["g"].sort(key=lambda row: row[0])
            line.setdefault("t", now)
            line["v"] = 1
        texts = [to_json(line) for line in self.output]
        changed = self.sections.keys() & {STATE_AFTER.get(line["k"]) for line in self.output}
        texts += ["!%s %s" % (name, to_json(self.sections[name].state())) for name in changed]
        self.output = []
        write(("\n".join(texts) + "\n").encode())

    def read_requests(self, timeout: float) -> None:
        """Wait for the parent's requests: S a spec, K what is stuck. Exits when the parent has ended."""
        if not self.poll.poll(1000 * timeout):
            return
        data = os.read(0, 65536)
        if not data:
            os._exit(0)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            if line[:1] == b"S":
                self.configure(line[1:])
            elif line[:1] == b"K":  # what is no longer stuck is read at once, and its trouble ends
                before, self.stuck = self.stuck, from_json(line[1:].decode())  # type: ignore[assignment]
                self.next_tick = self.next_slow = 0.0
                for name in before.keys() - self.stuck:
                    self.add(self.trouble(name, None))

    def report_stuck(self, now: float, slow: bool) -> None:
        """Add a row for every stuck operation in each round: without it, the last data would appear current."""
        for name, (since, why) in self.stuck.items():
            text = "no answer for %ds" % (now - since) if why == "hung" else "reading it crashes"
            if slow:
                kind, _, path = name.partition(":")
                lines = {
                    "disk": {
                        "k": "disk",
                        "d": [{"path": path, "state": "hung" if why == "hung" else "error", "error": text}],
                    },
                    "switch": {"k": "switch", "s": [{"path": path, "exists": None, "error": text}]},
                    "log": {"k": "log", "id": path, "error": text},
                    "ckpt": {"k": "ckpt", "path": path, "error": text},
                    "file": {"k": "file", "id": path, "error": text},
                    "receipts": {"k": "receipts", "directory": path, "error": text},
                    "wandb": {"k": "wandb", "id": path, "error": text},
                }  # type: dict[str, Line]
                self.add([lines[kind]] if kind in lines else self.trouble(name, TITLES.get(kind, kind) + ": " + text))
            self.add(self.sections["gpu"].stuck(name, text))

    def run_trial(self, stuck: str) -> None:
        """Try a stuck operation once. Its return is the answer; the main worker reports its lines."""
        first = ["nvml"] if stuck.startswith(("gpu:", "xid", "processes")) else []
        first += ["amdgpu"] if stuck.startswith(("amd:", "amdsmi", "processes")) else []
        for wanted in [*first, stuck]:
            operations = [one for section in self.sections.values() for one in section.operations(True)]
            for name, function in operations:
                if name == wanted:
                    self.perform(name, function)
        write(b"!done\n")
