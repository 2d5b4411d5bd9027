"""The table of verbs: it is complete, and a new verb needs one record and the function that plans it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import get_args

from trainmon.actions.verbs import VERBS, function
from trainmon.model import Verb


def test_every_verb_has_one_record_and_the_functions_that_it_names() -> None:
    assert sorted(spec.name for spec in VERBS) == sorted(get_args(Verb))
    for spec in VERBS:
        assert all(callable(function(name)) for name in (spec.plan, spec.verify, spec.proof) if name), spec.name


def test_a_new_verb_needs_one_record_and_one_function_that_plans_it() -> None:
    argv = [sys.executable, "-m", "tests.trainmon.actions.new_verb"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == {
        "command": "Nudge jobs.",
        "group": True,
        "subject": ["prod/88_3"],
        "key": ["D"],
        "docs": True,
        "help": True,
        "palette": "D",
        "menu": ["Nudge its job"],
        "menu lines": ["Nudge its job"],
        "request": ["llm"],
        "reads": [[["prod/88_3", "88_3"]]],
        "plan": ["Nudge job 88_3 of llm", ["nudge", "88_3"]],
        "button": "Nudge (3 actions)",
        "sentence": "`nudge` nudges it",
        "settled": True,
    }
