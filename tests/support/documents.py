"""The pages of the documentation, and the examples in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles

ROOT = Path(__file__).parents[2]
SPHINX_ROLES = ("doc", "download", "ref", "class", "func", "exc", "mod")
SPHINX_DIRECTIVES = (
    "attribute",
    "autoclass",
    "autoexception",
    "autofunction",
    "toctree",
)
STRICT = {
    "_disable_config": True,
    "halt_level": 2,
    "syntax_highlight": "none",
    "file_insertion_enabled": True,
}


@dataclass(frozen=True)
class Example:
    """A block of code, and the comment right before it, which is for its test."""

    document: str
    language: str
    text: str
    mark: str

    @property
    def first_line(self) -> str:
        """What the example begins with."""
        return self.text.partition("\n")[0]


class Document:
    """One page."""

    def __init__(self, path: Path):
        self.path = path
        self.name = path.relative_to(ROOT).as_posix()
        self.source = path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> nodes.document:
        """The parsed page. A warning is an error; only docs/ has Sphinx's markup."""
        with patch.dict(roles._roles), patch.dict(directives._directives):
            if self.name.startswith("docs/"):
                _register_sphinx()
            return publish_doctree(
                self.source, str(self.path), settings_overrides=STRICT
            )

    @property
    def titles(self) -> list[str]:
        """The headings, in order."""
        return [title.astext() for title in self.tree.findall(nodes.title)]

    @property
    def labels(self) -> set[str]:
        """The names that :ref: can use."""
        return set(re.findall(r"^\.\. _([\w-]+):$", self.source, re.MULTILINE))

    @property
    def links(self) -> list[str]:
        """The addresses of the links."""
        references = self.tree.findall(nodes.reference)
        return [link["refuri"] for link in references if "refuri" in link]

    def directives(self, name: str) -> list[str]:
        """Return the arguments and contents of Sphinx's directives of this name."""
        return re.findall(rf"^\.\. {name}:: *([\w.]+)", self.source, re.MULTILINE)

    def roles(self, name: str) -> list[str]:
        """Return the targets of Sphinx's roles of this name."""
        texts = re.findall(rf":{name}:`([^`]+)`", self.source)
        return [re.sub(r"^.*<(.+)>$", r"\1", text.replace("\n", " ")) for text in texts]

    @property
    def examples(self) -> Iterator[Example]:
        """The code on this page, and what only its tests see, in order."""
        for node in self.tree.findall(_is_code):
            if isinstance(node, nodes.comment):
                yield Example(self.name, "hidden", node.astext()[len("run:") :], "")
            else:
                yield Example(self.name, _language(node), node.astext(), _mark(node))


def all_documents() -> list[Document]:
    """Return every page, those in the root and the example first."""
    root = [*sorted(ROOT.glob("*.rst")), ROOT / "example_project" / "README.rst"]
    paths = [*root, *sorted(ROOT.glob("docs/**/*.rst"))]
    return [Document(path) for path in paths if "_build" not in path.parts]


def _is_code(node: nodes.Node) -> bool:
    if isinstance(node, nodes.comment):
        return node.astext().startswith("run:")
    return isinstance(node, nodes.literal_block | nodes.doctest_block)


def _language(node: Any) -> str:
    if isinstance(node, nodes.doctest_block):
        return "doctest"
    return next((name for name in node["classes"] if name != "code"), "text")


def _mark(node: Any) -> str:
    position = node.parent.index(node)
    before = node.parent[position - 1] if position else None
    is_mark = isinstance(before, nodes.comment) and not _is_code(before)
    return before.astext() if is_mark else ""


class _Ignored(Directive):
    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        return []


def _register_sphinx() -> None:
    for name in SPHINX_ROLES:
        roles.register_generic_role(name, nodes.emphasis)
    for name in SPHINX_DIRECTIVES:
        directives.register_directive(name, _Ignored)
