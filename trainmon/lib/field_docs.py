"""What is written under each field of a struct in its source: Python keeps no docstrings of fields."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from functools import cache

import msgspec


@cache
def field_descriptions(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The text under each field, by the field's name; those of its bases, too."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            found.update(_own(base))
    return found


def _own(struct: type[msgspec.Struct]) -> dict[str, str]:
    module = sys.modules[struct.__module__]
    tree = _tree(module.__name__)
    body = next(
        (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == struct.__name__), []
    )
    found = {}
    for field, note in itertools.pairwise([*body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            said = note.value if isinstance(note, ast.Expr) else None
            found[field.target.id] = " ".join(str(said.value).split()) if isinstance(said, ast.Constant) else ""
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def description(struct: type) -> str:
    """What a struct is, on one line."""
    return " ".join((struct.__doc__ or "").split())
