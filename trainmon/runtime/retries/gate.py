"""Checks the nodes on which a run may start again: what the rules say of them, and the directory of its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event

from trainmon.alerting.gate import is_judged, node_checks
from trainmon.alerting.manager import AlertManager
from trainmon.engine.engine import Engine
from trainmon.lib import Seconds, TrainmonError
from trainmon.model import NodeCheck, Run
from trainmon.transport.shell import Shell

ABSENT = 3

ACCESS = (
    f'echo; [ -e "$1" ] || {{ echo does not exist; exit {ABSENT}; }}; [ -r "$1" ] || echo may not be read; '
    '[ -w "$1" ] || echo may not be written; [ -x "$1" ] || echo may not be searched; exit 0'
)
"""Says what may not be done, by access(2): nothing is written. A login script may print text before it."""

SAYS = ("does not exist", "may not be read", "may not be written", "may not be searched")

TIMEOUT: Seconds = 8.0
"""A mount that hangs does not answer at all."""

AT_ONCE = 128
"""Nodes that are asked at once: of 512 that all hang, it takes 32 s."""


def check_nodes(
    engine: Engine,
    alerting: AlertManager,
    shell_of: Callable[[str], Shell],
    run: str | None,
    nodes: Sequence[str],
) -> tuple[NodeCheck, ...]:
    """The checks of these nodes for a run, or for a job of no run, over the connections that are open. Whether the
    owner of another user's job may write is not known."""
    from multiprocessing.pool import ThreadPool  # 15 ms, for which the start need not wait

    began, pause = engine.clock.now(), Event()
    any(is_judged(engine.state, began) or pause.wait(0.1) for _ in range(30))  # the rules are evaluated once a second
    state, known = engine.state, engine.state.runs.get(run or "")
    found = [*node_checks(state, alerting.rules, nodes, began, engine.clock.now())]
    used = list(dict.fromkeys(one.node for one in found if one.outcome in ("passed", "fault")))
    if (
        known is not None
        and known.spec.checkpoints is not None
        and known.spec.user in {None, *(cluster.me for cluster in state.clusters.values())}
        and used
    ):
        with ThreadPool(min(AT_ONCE, len(used))) as pool:  # its threads are daemons
            found += pool.map(partial(_access, known, shell_of), used, chunksize=1)
    return tuple(found)


def _access(run: Run, shell_of: Callable[[str], Shell], node: str) -> NodeCheck:
    check, path = partial(NodeCheck, node, "checkpoints"), run.spec.checkpoints
    try:
        done = shell_of(node).run(("sh", "-c", ACCESS, "sh", path or ""), timeout=TIMEOUT)
    except TrainmonError as error:
        return check("not checked", error.message.removeprefix(f"{node}: "))
    said = ", ".join(line for line in done.stdout.decode("utf-8", "replace").splitlines() if line in SAYS) or (
        f"was not tested: sh ended with {done.status}" if done.status else ""
    )
    is_fault = done.status == 0 or (done.status == ABSENT and run.checkpoints is not None and run.checkpoints.list)
    return check("fault" if is_fault else "not checked", f"{path} {said}") if said else check()
