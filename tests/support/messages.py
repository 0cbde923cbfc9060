"""What the package says: its log lines and the texts of its errors."""

from __future__ import annotations

import ast
import re

from tests.support.paths import ROOT

PLACES = {"debug": 0, "info": 0, "warning": 0, "error": 0, "exception": 0, "log": 1}
"""Of the text, among the arguments of a logger's method."""
HOLE = "…"
"""Stands for what is filled in."""


def said() -> set[str]:
    """Return each text, with what is filled in as a hole."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in ROOT.glob("django_shedlock/**/*.py")
        if "testing" not in path.relative_to(ROOT).parts
    }
    # The errors of the command line are answers to what somebody typed.
    errors = {
        node.name
        for path, tree in trees.items()
        if "console" not in path.parts and "cli" not in path.with_suffix("").parts
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _is_error(node)
    }
    found: set[str] = set()
    for tree in trees.values():
        for scope in ast.walk(tree):
            if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
                found |= _said_in(scope, errors)
    return {text for text in found if re.search("[a-z]{3}", text)}


def _is_error(node: ast.ClassDef) -> bool:
    bases = map(ast.unparse, node.bases)
    return any(base.endswith(("Error", "Exception")) for base in bases)


def _said_in(scope: ast.AST, errors: set[str]) -> set[str]:
    nodes = list(ast.walk(scope))
    names: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                names.setdefault(target.id, set()).add(_text(node.value, {}))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    texts = (
        _text(call.args[place], names)
        for call in calls
        if (place := _place(call.func, errors)) is not None and len(call.args) > place
    )
    return {" ".join(re.sub(r"%(\.\d)?[rsdf]", HOLE, text).split()) for text in texts}


def _place(function: ast.expr, errors: set[str]) -> int | None:
    """Return where a logger or an error has its text, if it is one."""
    called = ast.unparse(function)
    owner, _, name = called.rpartition(".")
    if owner.endswith("logger"):
        return PLACES.get(name)
    return 0 if name in errors else None


def _text(node: ast.expr, names: dict[str, set[str]]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, names) for part in parts)
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return _text(left, names) + _text(right, names)
        case ast.Name(id=name) if len(names.get(name, ())) == 1:
            return next(iter(names[name]))
    return HOLE
