"""Checks what is read in the logs: the last step of each run, and whether each [[log_format]] matches a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmon.analysis.log_formats import EXAMPLE, Format, LogReport, config_block, report, suggested, summary
from trainmon.cli.check.rows import Row
from trainmon.lib import counted
from trainmon.model import LogChunk


class LogChecks(NamedTuple):
    """The log formats of the config, and what was read in the log of each run. The checks of all hosts share it."""

    formats: Sequence[Format]
    runs: int
    """How many runs of the config have a log."""
    logs: dict[str, LogReport]

    def check(self, host: str, run: str, chunk: LogChunk) -> Row:
        """The format of a log with its last step, or a format to start from."""
        what, read = f"log of {run}", report((*chunk.kept, *chunk.lines), self.formats, partial=chunk.partial)
        count, progress = len(read.lines), read.progress
        if not count:
            return Row("note", host, what, "empty so far: its format is not known yet")
        self.logs[run] = read
        if progress.step is None and progress.epoch is None:
            template = _template(read)
            how = "" if template else ", with a step line of the log as its template"
            fix = f"if training has begun, add this to the config{how}; `trainmon-tui log-format {run}` shows the lines"
            text = f"no step in its last {counted(count, 'line')}"
            return Row("bad", host, what, text, f"{fix}\n{config_block(run, template or EXAMPLE)}")
        step = f"epoch {progress.epoch:g}" if progress.step is None else f"step {progress.step:,}"
        target = "" if progress.step is None or progress.target_step is None else f" of {progress.target_step:,}"
        return Row("ok", host, what, f"{step}{target}, format {summary(progress, read.shape, count)}")

    def check_formats(self) -> Iterator[Row]:
        """Whether each format of the config matches a line of some log."""
        for one in self.formats:
            matched = [run for run, log in self.logs.items() if any(one.parse(line.text) for line in log.lines)]
            if matched:
                yield Row("ok", "log_format", one.name, f"matches lines of {', '.join(matched)}")
            elif not self.logs:
                yield Row("note", "log_format", one.name, "not tested: no log has lines to read")
            else:
                run, log = min(self.logs.items(), key=lambda pair: pair[1].steps > 0)
                block = config_block(one.name, _template(log) or EXAMPLE)
                unread = self.runs - len(self.logs)
                others = f"; not read or empty: {counted(unread, 'log')}" if unread > 0 else ""
                text = f"matches no line of {counted(len(self.logs), 'log')}{others}"
                fix = f"remove it or correct it; for the log of {run}:\n{block}"
                yield Row("note" if others else "bad", "log_format", one.name, text, fix)


def _template(read: LogReport) -> str | None:
    """The format of a log, or what it may be."""
    return read.template or suggested(one.text for one in read.lines)
