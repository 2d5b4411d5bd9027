"""GPUs through nvidia-smi, where its library cannot be loaded but the command is there.

The command may hang (a wedged driver): it is started in one operation and looked at in the next ones, never waited for,
killed with its group after a while, and never started again while one has not returned.
"""

import os
import subprocess
import time

from collectors.probe.gpu import smi_parse as smi_text
from collectors.probe.gpu.pci import on_the_bus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Line = dict[str, Any]

COMMAND = "nvidia-smi"
PATIENCE = 20.0
"""Without persistence mode one call initialises every GPU: 5 to 15 s for 8 of them."""
SHARE = 10.0
"""At most a tenth of the time is spent in nvidia-smi: it holds the driver's lock."""
LONGEST_OUTPUT = 1 << 20


def exists() -> bool:
    """Whether there is such a command on the PATH."""
    return any(os.access(os.path.join(folder, COMMAND), os.X_OK) for folder in os.get_exec_path())


class Call:
    """One running nvidia-smi."""

    def __init__(self, arguments: "list[str]") -> None:
        self.begun = time.monotonic()
        self.killed = False
        self.output = b""
        self.process = subprocess.Popen(
            [COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pipe = self.process.stdout.fileno() if self.process.stdout else -1
        os.set_blocking(self.pipe, False)

    def age(self) -> float:
        return time.monotonic() - self.begun

    def is_over(self) -> bool:
        """Whether it has returned. Reads what it says meanwhile: a full pipe would stop it."""
        over = self.process.poll() is not None
        try:
            while len(self.output) < LONGEST_OUTPUT:
                data = os.read(self.pipe, 65536)
                if not data:
                    break
                self.output += data
        except BlockingIOError:
            return over  # nothing more for now
        return over

    def kill(self) -> None:
        self.killed = True
        try:
            os.killpg(self.process.pid, 9)
        except OSError:
            self.process.kill()

    def text(self) -> str:
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self.output.decode("utf-8", "replace")


class Smi:
    """The same rows as NVML gives, from one query for all GPUs; or from one a GPU, when one of them fails them all."""

    def __init__(self, gpus: "Any", monotonic: "Callable[[], float]" = time.monotonic) -> None:
        self.gpus = gpus
        self.monotonic = monotonic
        self.fields = []  # type: list[str]
        self.call = None  # type: Call | None
        self.next_at = 0.0
        self.todo = []  # type: list[tuple[str, list[str]]]
        self.what = ""
        self.rows = {}  # type: dict[int, smi_text.Row]
        self.known = {}  # type: dict[int, smi_text.Row]
        self.processes = {}  # type: dict[str, list[Line]]
        self.failed = {}  # type: dict[str, str]
        self.trouble = None  # type: str | None

    def operations(self, slow: bool) -> "list[tuple[str, Callable[[], list[Line] | None]]]":
        return [("smi", lambda: self.advance(slow))]

    def advance(self, slow: bool) -> "list[Line]":
        """Go one step on with what runs; never waits."""
        if self.call is not None:
            if not self.call.is_over():
                return self.late(self.call) if self.call.age() > self.patience() else []
            lines = self.returned(self.call)
        else:
            lines = []
        if self.call is None:
            if not self.todo and self.monotonic() >= self.next_at:
                self.rows, self.failed = {}, {}
                self.todo = self.plan(slow)
            if self.todo:
                self.what, arguments = self.todo.pop(0)
                self.call = Call(arguments)
                self.told(self.call.process.pid)
        return lines

    def patience(self) -> float:
        return float(self.gpus.spec.get("smi_patience", PATIENCE))

    def told(self, group: int) -> None:
        """The parent kills this group with us."""
        if self.gpus.mark is not None:
            self.gpus.mark.started(group)

    def plan(self, slow: bool) -> "list[tuple[str, list[str]]]":
        steps = [] if self.fields else [("help", ["--help-query-gpu"])]
        steps.append(("query", []))
        if slow:
            steps.append(("apps", ["--query-compute-apps=" + ",".join(smi_text.APPS), "--format=csv,noheader,nounits"]))
        return [(what, arguments or self.query()) for what, arguments in steps]

    def query(self, index: "int | None" = None) -> "list[str]":
        one = [] if index is None else ["-i", str(index)]
        fields = self.fields or list(smi_text.FIELDS)
        return [*one, "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"]

    def late(self, call: Call) -> "list[Line]":
        """It hangs: its group is killed, once, and every GPU's row says so until it is gone."""
        if not call.killed:
            call.kill()
        text = "%s: no answer for %d s" % (COMMAND, call.age())
        lines = [{"k": "gpu", "g": [[index, text, False] for index in sorted(self.known)]}] if self.known else []
        return lines + self.say(COMMAND + " does not answer; it is not started again before it has returned")

    def say(self, text: "str | None") -> "list[Line]":
        if text == self.trouble:
            return []
        self.trouble = text
        return [{"k": "trouble", "part": "gpu", "text": text}]

    def returned(self, call: Call) -> "list[Line]":
        """Take the answer of a call that is over; after the last one of a round, say what is known."""
        text, status = call.text(), call.process.returncode
        self.call = None
        self.told(0)
        self.next_at = self.monotonic() + (self.patience() if call.killed else SHARE * call.age())
        if call.killed:
            self.todo = []
            return []
        if self.what == "help":
            offered = smi_text.offered(text)
            self.fields = [field for field in smi_text.FIELDS if field in offered] or list(smi_text.FIELDS)
            self.todo = [(what, self.query() if what == "query" else arguments) for what, arguments in self.todo]
            return []
        if self.what == "apps":
            self.processes = smi_text.apps(text) if not status else {}
        else:
            trouble = self.take(text, status)
            if trouble:
                self.todo = []
                return self.refused(trouble)
        return self.say(None) + self.lines() if not self.todo else []

    def take(self, text: str, status: int) -> "str | None":
        """The rows of one answer; or why there is none, in nvidia-smi's words, when it concerns the whole node."""
        self.rows.update(smi_text.rows(text, self.fields or list(smi_text.FIELDS)))
        failed = smi_text.failed(text)
        self.failed.update(failed)
        if self.what == "query" and failed:
            places = sorted(self.known) or list(range(max(on_the_bus(self.gpus.root), len(self.rows) + len(failed))))
            self.todo = [("one:%d" % index, self.query(index)) for index in places] + self.todo
        elif self.what.startswith("one:"):
            index = int(self.what[4:])
            if index not in self.rows:
                error = next(iter(failed.values()), smi_text.sentence(text) or "status %d" % status)
                before = self.known.get(index)
                self.rows[index] = smi_text.Row.broken(index, error, before)
        elif not self.rows:
            return smi_text.sentence(text) or "%s ended with status %d" % (COMMAND, status)
        return None

    def refused(self, why: str) -> "list[Line]":
        rows = [[index, why, False] for index in sorted(self.known)]
        lines = [{"k": "gpu", "g": rows}] if rows else []
        return self.say(why) + lines

    def lines(self) -> "list[Line]":
        """All GPUs that were ever seen; one that is no longer listed has vanished."""
        for index, before in self.known.items():
            if index not in self.rows:
                self.rows[index] = smi_text.Row.broken(index, "GPU has vanished: nvidia-smi no longer lists it", before)
                self.rows[index].lost = True
        self.known = dict(self.rows)
        self.gpus.known = [[row.index, row.pci, row.uuid] for row in self.known.values()]
        self.gpus.expected = max(self.gpus.expected, len(self.known))
        ordered = [self.rows[index] for index in sorted(self.rows)]
        facts = [dict(row.facts(), processes=self.processes.get(row.uuid or "", [])) for row in ordered]
        return [
            {"k": "gpus", "g": facts, "expected": self.gpus.expected},
            {"k": "gpu", "g": [row.sample() for row in ordered]},
        ]
