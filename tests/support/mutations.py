"""Where cosmic-ray can change a file of ours in a way that a test could tell."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

SAME_MEANING = ("_Is_Eq", "_IsNot_NotEq")
"""With ``is`` we compare members of enums, and ``None``: each is one object."""

TOO_EASY = ("_Mod", "_Pow", "_FloorDiv", "_LShift", "_RShift", "_BitXor")
"""Instants, conditions and sequences have none of these: any test would tell."""

IRRELEVANT = {
    "if_stmt": "if TYPE_CHECKING:",
    "expr_stmt": "__all__",
    "decorator": "@overload",
    "atom_expr": "logger.",
    "power": "logger.",
}
"""How code begins that is for type checkers, readers and logs, by its kind."""

Place = tuple[int, int]
Variant = tuple[str, int]
"""An operator of cosmic-ray, and which of the places where it applies to a file."""


@dataclass(frozen=True)
class Mutant:
    """A file with one change; ``was`` and ``becomes`` are the lines that differ."""

    path: str
    line: int
    operator: str
    code: str
    was: str
    becomes: str

    def __str__(self) -> str:
        changes = [f"    - {line}" for line in self.was.splitlines()]
        changes += [f"    + {line}" for line in self.becomes.splitlines()]
        return "\n".join([f"{self.path}:{self.line} {self.operator}", *changes])


def draw(codes: dict[str, str], count: int, seed: int) -> list[Mutant]:
    """Draw mutants of these files, given by path: one of each, then from all places."""
    chance = random.Random(seed)
    places = [
        (path, line, variants)
        for path, code in codes.items()
        for (line, _), variants in places_of(code).items()
    ]
    chance.shuffle(places)
    firsts = {place[0]: place for place in reversed(places)}
    others = [place for place in places if place is not firsts[place[0]]]
    drawn: list[Mutant] = []
    for path, line, variants in [*firsts.values(), *others]:
        if len(drawn) == count:
            break
        chance.shuffle(variants)
        drawn += [*_mutants(path, codes[path], line, variants)][:1]
    return sorted(drawn, key=lambda mutant: (mutant.path, mutant.line))


def places_of(code: str) -> dict[Place, list[Variant]]:
    """Return what can be done at each line and column."""
    places: dict[Place, list[Variant]] = {}
    nodes = [*ast_nodes(get_ast(code))]
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments() or name.endswith(SAME_MEANING + TOO_EASY):
            continue
        positions = operator().mutation_positions
        found = ((node, start) for node in nodes for start, _ in positions(node))
        for occurrence, (node, start) in enumerate(found):
            if not _is_irrelevant(node):
                places.setdefault(start, []).append((name, occurrence))
    return places


def _is_irrelevant(node: Any, part: Any = None) -> bool:
    kind = node.type
    if (
        (kind == "annassign" and part is node.children[1])
        or (kind == "tfpdef" and part is not node.children[0])
        or (kind == "funcdef" and part and part is node.annotation)
        or (kind == "parameters" and part and part.type == "operator")
    ):
        return True
    beginning = IRRELEVANT.get(kind)
    if beginning and node.get_code(include_prefix=False).startswith(beginning):
        return True
    return node.parent is not None and _is_irrelevant(node.parent, node)


def _mutants(
    path: str, code: str, line: int, variants: Iterable[Variant]
) -> Iterator[Mutant]:
    for name, occurrence in variants:
        mutated = mutate_code(code, get_operator(name)(), occurrence)
        with suppress(SyntaxError):
            compile(mutated, path, "exec", dont_inherit=True)
            was, becomes = changed_lines(code, mutated)
            yield Mutant(path, line, name.removeprefix("core/"), mutated, was, becomes)


def changed_lines(code: str, mutated: str) -> tuple[str, str]:
    """Return the lines that differ, before and after, without what surrounds them."""
    before, after = code.splitlines(), mutated.splitlines()
    changes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    was: list[str] = []
    becomes: list[str] = []
    for tag, start, end, new_start, new_end in changes:
        if tag != "equal":
            was += before[start:end]
            becomes += after[new_start:new_end]
    return _joined(was), _joined(becomes)


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(line.strip() for line in lines if line.strip())
