"""Where lives begin quickly: everything is imported once, and each life is a fork. `python -m tests.chaos.fork_server`.

A line of standard input is a Spec; when its life is over, `over` and how it ended follow on standard output.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback

import msgspec

from tests.chaos.life import Spec, live


def main() -> None:
    logging.getLogger().addHandler(logging.NullHandler())  # what fails here is meant to
    for line in sys.stdin:
        spec = msgspec.json.decode(line, type=Spec)
        child = os.fork()
        if child == 0:
            try:
                live(spec)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.write(1, f"over {os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main()
