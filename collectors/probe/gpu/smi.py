"""The GPUs through nvidia-smi, if the command is there and its library cannot be loaded.

The command may hang (a wedged driver). One operation starts it and the next ones check it; none waits. It is killed
with its process group after a while, and not started again before it has returned.
"""

import os
import subprocess
import time

from collectors.probe.gpu import driver_text
from collectors.probe.gpu.card import error_rows
from collectors.probe.host import on_the_bus
from collectors.probe.stdlib import Any, Line

PATIENCE = 20.0
"""Without persistence mode, one call initialises every GPU: 5 to 15 s for 8 GPUs."""
PAUSE_FACTOR = 10.0
"""The pause after a call, in call durations: nvidia-smi holds the driver's lock."""
CSV = "--format=csv,noheader,nounits"
LONGEST_OUTPUT = 1 << 20


def exists(command: str) -> bool:
    """Whether the command is on the PATH."""
    return any(os.access(os.path.join(folder, command), os.X_OK) for folder in os.get_exec_path())


class Call:
    """One running command."""

    def __init__(self, command: "list[str]") -> None:
        self.started_at = time.monotonic()
        self.killed = False
        self.output = b""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pipe = self.process.stdout.fileno() if self.process.stdout else -1
        os.set_blocking(self.pipe, False)

    def age(self) -> float:
        return time.monotonic() - self.started_at

    def has_returned(self) -> bool:
        """Whether it has returned. Reads its output meanwhile: a full pipe would stop it."""
        has_returned = self.process.poll() is not None
        try:
            while len(self.output) < LONGEST_OUTPUT:
                data = os.read(self.pipe, 65536)
                if not data:
                    break
                self.output += data
        except BlockingIOError:
            pass  # no more for now
        return has_returned

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
    """The same rows as from NVML, by one query for all GPUs; if one GPU makes it fail, by one query for each GPU."""

    command = "nvidia-smi"

    def __init__(self, gpus: "Any") -> None:
        self.gpus = gpus
        self.fields = []  # type: list[str]
        self.call = None  # type: Call | None
        self.next_at = 0.0
        self.queue = []  # type: list[tuple[str, list[str]]]
        self.step = ""
        self.rows = {}  # type: dict[int, Any]
        self.known = {}  # type: dict[int, Any]
        self.processes = {}  # type: dict[str, list[Line]]
        self.reported = None  # type: str | None

    def advance(self, slow: bool) -> "list[Line]":
        """Check the running call, or start the next one; never waits."""
        patience = float(self.gpus.spec.get("smi_patience", PATIENCE))
        lines = []  # type: list[Line]
        if self.call is not None:
            if not self.call.has_returned():
                return self.overdue(self.call) if self.call.age() > patience else []
            lines = self.returned(self.call, patience)
        if not self.queue and time.monotonic() >= self.next_at:
            self.rows = {}
            self.plan(slow)
        if self.queue:
            self.step, arguments = self.queue.pop(0)
            self.call = Call([self.command, *arguments])
            self.set_command_group(self.call.process.pid)
        return lines

    def plan(self, slow: bool) -> None:
        """Queue the calls of a round."""
        self.queue = [] if self.fields else [("help", ["--help-query-gpu"])]
        self.queue.append(("query", self.query()))
        if slow:
            self.queue.append(("apps", ["--query-compute-apps=" + ",".join(driver_text.APPS), CSV]))

    def set_command_group(self, group: int) -> None:
        """The parent kills this process group with this worker."""
        mark = self.gpus.spec.get("mark")
        if mark is not None:
            mark.set_command_group(group)

    def query(self, index: "int | None" = None) -> "list[str]":
        one = [] if index is None else ["-i", str(index)]
        return [*one, "--query-gpu=" + ",".join(self.fields or driver_text.FIELDS), CSV]

    def overdue(self, call: Call) -> "list[Line]":
        """It hangs: kill its group once. Every GPU's row has the error until it has exited."""
        if not call.killed:
            call.kill()
        trouble = self.trouble(self.command + " does not answer; it is not started again before it has returned")
        return error_rows(sorted(self.known), "%s: no answer for %ds" % (self.command, call.age())) + trouble

    def trouble(self, text: "str | None") -> "list[Line]":
        if text == self.reported:
            return []
        self.reported = text
        return [{"k": "trouble", "part": "gpu", "text": text}]

    def returned(self, call: Call, patience: float) -> "list[Line]":
        """Handle a call that has returned. After the last one of a round, the lines of all GPUs."""
        text, status = call.text(), call.process.returncode
        self.call = None
        self.set_command_group(0)
        self.next_at = time.monotonic() + (patience if call.killed else PAUSE_FACTOR * call.age())
        if call.killed:
            self.queue = []
            return []
        if self.step == "help":
            offered = driver_text.offered(text)
            self.fields = [field for field in driver_text.FIELDS if field in offered] or list(driver_text.FIELDS)
            self.queue = [(step, self.query() if step == "query" else arguments) for step, arguments in self.queue]
            return []
        if self.step == "apps":
            self.processes = driver_text.apps(text) if not status else {}
        else:
            error = self.add_rows(text, status)
            if error:
                self.queue = []
                return self.trouble(error) + error_rows(sorted(self.known), error)
        return self.trouble(None) + self.lines() if not self.queue else []

    def add_rows(self, text: str, status: int) -> "str | None":
        """Add the rows of one call. Returns nvidia-smi's own error if it concerns the whole node."""
        self.rows.update(driver_text.rows(text, self.fields or list(driver_text.FIELDS)))
        failed = driver_text.failed(text)
        if self.step == "query" and failed:
            indices = sorted(self.known) or range(max(on_the_bus(self.gpus.root), len(self.rows) + len(failed)))
            self.queue = [("one:%d" % index, self.query(index)) for index in indices] + self.queue
        elif self.step.startswith("one:"):
            index = int(self.step[4:])
            if index not in self.rows:
                error = next(iter(failed.values()), driver_text.sentence(text) or "status %d" % status)
                self.rows[index] = driver_text.Row.broken(index, error, self.known.get(index))
        elif not self.rows:
            return driver_text.sentence(text) or "%s ended with status %d" % (self.command, status)
        return None

    def lines(self) -> "list[Line]":
        """All GPUs that were ever listed. One that is no longer listed has vanished."""
        for index, before in self.known.items():
            if index not in self.rows:
                gone = "GPU has vanished: %s no longer lists it" % self.command
                self.rows[index] = driver_text.Row.broken(index, gone, before)
                self.rows[index].lost = True
        self.known = dict(self.rows)
        self.gpus.known = [[row.index, row.pci, row.uuid] for row in self.known.values()]
        self.gpus.expected = max(self.gpus.expected, len(self.known))
        ordered = [self.rows[index] for index in sorted(self.rows)]
        facts = [dict(row.described(), processes=self.processes.get(row.uuid or "", [])) for row in ordered]
        return [
            {"k": "gpus", "g": facts, "expected": self.gpus.expected},
            {"k": "gpu", "g": [row.sample() for row in ordered]},
        ]
