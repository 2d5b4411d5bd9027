"""Checks the nodes on which a run may start again: what the rules say of them, and the directory of its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from threading import Event

from msgspec.structs import replace

from trainmon.alerting.gate import is_judged, node_checks
from trainmon.alerting.manager import AlertManager
from trainmon.engine.engine import Engine
from trainmon.lib import Seconds, TrainmonError
from trainmon.model import NodeCheck
from trainmon.transport.shell import Collected, Shell

ABSENT = 3

ACCESS = (
    'echo; [ "${2:-$(id -un)}" = "$(id -un)" ] || { echo would be read by another user than the job; exit 4; }; '
    f'[ -e "$1" ] || {{ echo does not exist; exit {ABSENT}; }}; [ -r "$1" ] || echo may not be read; '
    '[ -w "$1" ] || echo may not be written; [ -x "$1" ] || echo may not be searched; exit 0'
)
"""Says what may not be done, by access(2): nothing is written. A login script may print text before it."""

SAYS = (
    "would be read by another user than the job", "does not exist", "may not be read", "may not be written",
    "may not be searched",
)  # fmt: skip

TIMEOUT: Seconds = 8.0
"""A mount that hangs does not answer at all."""

AT_ONCE = 128
"""Nodes that are asked at once: of 512 that all hang, it takes 32 s."""


def check_nodes(
    engine: Engine,
    alerting: AlertManager,
    shell_of: Callable[[str], Shell],
    asked: MutableMapping[tuple[str, str], Collected],
    run: str | None,
    nodes: Sequence[str],
) -> tuple[NodeCheck, ...]:
    """The checks of these nodes for a run, or for a job of no run, over the connections that are open. `asked` has what
    was asked of each node, and may not have returned."""
    from multiprocessing.pool import ThreadPool  # 15 ms, for which the start need not wait

    began, pause = engine.clock.now(), Event()
    any(is_judged(engine.state, began) or pause.wait(0.1) for _ in range(30))  # the rules are evaluated once a second
    state, known = engine.state, engine.state.runs.get(run or "")
    found = [*node_checks(state, alerting.rules, nodes, run, began, engine.clock.now())]
    used = list(dict.fromkeys(one.node for one in found if one.outcome not in ("not checked", "not used")))
    if known is not None and (path := known.spec.checkpoints) is not None and used:
        user = next((state.jobs[key].user for key in known.jobs if key in state.jobs), known.spec.user)
        with ThreadPool(min(AT_ONCE, len(used))) as pool:  # its threads are daemons
            tested = pool.map(partial(_access, path, user or "", shell_of, asked), used, chunksize=1)
        absent = {node for (node, at), answer in list(asked.items()) if at == path and answer.status == ABSENT}
        is_there = any(one.outcome == "passed" for one in tested)  # else the nodes may know it by another path
        found += [replace(one, outcome="fault") if is_there and one.node in absent else one for one in tested]
    return tuple(found)


def _access(
    path: str, user: str, shell_of: Callable[[str], Shell], asked: MutableMapping[tuple[str, str], Collected], node: str
) -> NodeCheck:
    """A question that has not returned is not asked again: on a mount that hangs, each would leave a process there."""
    check, answer = partial(NodeCheck, node, "checkpoints"), asked.get((node, path))
    try:
        if answer is None or answer.done.is_set():
            answer = asked[node, path] = Collected()
            shell_of(node).stream(("sh", "-c", ACCESS, "sh", path, user), answer).finish()
        if not answer.done.wait(TIMEOUT):
            return check("not checked", f"{path} has not answered for {TIMEOUT:g}s or longer")
        if answer.error is not None:
            raise answer.error
    except TrainmonError as error:
        asked.pop((node, path), None)
        return check("not checked", error.message.removeprefix(f"{node}: "))
    said = ", ".join(line for line in answer.stdout.decode("utf-8", "replace").splitlines() if line in SAYS) or (
        "" if answer.status == 0 else f"was not tested: sh ended with {answer.status or 'no status'}"
    )
    return check("fault" if answer.status == 0 else "not checked", f"{path} {said}") if said else check()
