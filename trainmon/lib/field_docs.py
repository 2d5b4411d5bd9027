"""Reads the docstrings of struct fields from the source: Python does not keep them."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from functools import cache

import msgspec


@cache
def field_descriptions(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring of each field on one line, by the field's name; inherited fields are included."""
    found = {}
    for base in reversed(struct.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        classes = (node for node in _tree(base.__module__).body if isinstance(node, ast.ClassDef))
        body = next((node.body for node in classes if node.name == base.__name__), [])
        for field, following in itertools.pairwise([*body, ast.Pass()]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = following.value if isinstance(following, ast.Expr) else None
                found[field.target.id] = " ".join(str(text.value).split()) if isinstance(text, ast.Constant) else ""
    return {name: found[name] for name in struct.__struct_fields__}


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def description(struct: type) -> str:
    """The docstring of a struct on one line."""
    return " ".join((struct.__doc__ or "").split())
