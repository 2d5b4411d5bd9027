"""DeepSpeed's own lines: log_dist, the throughput timer, and the pipeline engine. Only the last one has a loss.

`skipped` counts since the start here, unlike Megatron's. An OVERFLOW line is a skipped step, not a failure:
it says no step.
"""

from __future__ import annotations

import re

from trainmon.analysis.log_formats.line import Format, StepLine, number, positive, stripped

LOG_DIST = re.compile(r"step=(\d{1,12}), skipped=(\d{1,12}), lr=\[([^,\[\]]{1,40})")
TIMER = re.compile(
    r"epoch=\d{1,9}/micro_step=\d{1,12}/global_step=(\d{1,12}), RunningAvgSamplesPerSec=([\d.]{1,20}|nan|inf), "
    r"CurrSamplesPerSec=([\d.]{1,20}|nan|inf)"
)
PIPE = re.compile(
    r"steps: (\d{1,12}) loss: (\S{1,24}) iter time \(s\): ([\d.]{1,16}) samples/sec: ([\d.]{1,16}|nan|inf)"
)
SAVING = re.compile(r"(?:\[Torch\] )?Checkpoint \S{1,200} is about to be saved!")
SAVED = re.compile(r"(?:\[Torch\] )?Checkpoint \S{1,200} is ready now!")


def parse(line: str) -> StepLine | None:
    """Read a line of DeepSpeed."""
    if ", skipped=" in line:
        found = LOG_DIST.match(stripped(line))
        if found is not None:
            return StepLine(step=int(found[1]), skipped=int(found[2]), learning_rate=number(found[3]))
    elif "SamplesPerSec=" in line:
        found = TIMER.match(stripped(line))
        if found is not None:
            return StepLine(step=int(found[1]), samples_per_s=positive(number(found[3])))
    elif " iter time (s): " in line:
        found = PIPE.match(stripped(line))
        if found is not None:
            return StepLine(
                step=int(found[1]),
                loss=number(found[2]),
                step_time_s=positive(number(found[3])),
                samples_per_s=positive(number(found[4])),
            )
    elif "Checkpoint " in line:
        body = stripped(line)
        return StepLine(kind="save") if SAVING.match(body) else StepLine(kind="note") if SAVED.match(body) else None
    return None


DEEPSPEED = Format("deepspeed", r"step=\d+, skipped=\d+|global_step=\d+, RunningAvg|steps: \d+ loss: ", parse)
