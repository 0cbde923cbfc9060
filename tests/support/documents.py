"""The pages of the documentation."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles

from tests.support.paths import ROOT

SPHINX_ROLES = ("doc", "download", "ref", "class", "func", "exc", "mod")
SPHINX_DIRECTIVES = (
    "attribute",
    "autoclass",
    "autoexception",
    "autofunction",
    "graphviz",
    "toctree",
)
STRICT = {
    "_disable_config": True,
    "halt_level": 2,
    "syntax_highlight": "none",
    "file_insertion_enabled": True,
}


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

    @property
    def entries(self) -> list[str]:
        """The pages in its tables of contents."""
        blocks = re.findall(
            r"^\.\. toctree::\n(.*?)(?=^\S|\Z)", self.source, re.MULTILINE | re.DOTALL
        )
        return [
            name
            for block in blocks
            for name in re.findall(r"^   ([\w/]+)$", block, re.MULTILINE)
        ]

    def sections(self, title: str) -> list[str]:
        """Return the source below each heading of this text, up to the next one."""
        bar = r"(?:=+|-+)"
        parts = re.split(
            rf"^(?:{bar}\n)?(\S.*)\n{bar}$", self.source, flags=re.MULTILINE
        )
        pairs = zip(parts[1::2], parts[2::2], strict=True)
        return [" ".join(text.split()) for name, text in pairs if name == title]

    def directives(self, name: str) -> list[str]:
        """Return the arguments and contents of Sphinx's directives of this name."""
        return re.findall(rf"^\.\. {name}:: *([\w.]+)", self.source, re.MULTILINE)

    def roles(self, name: str) -> list[str]:
        """Return the targets of Sphinx's roles of this name."""
        texts = re.findall(rf":{name}:`([^`]+)`", self.source)
        return [re.sub(r"^.*<(.+)>$", r"\1", text.replace("\n", " ")) for text in texts]

    @property
    def blocks(self) -> list[str]:
        """The blocks of code with a language, in order."""
        found = self.tree.findall(nodes.literal_block)
        return [block.astext() for block in found if "code" in block["classes"]]

    @property
    def comments(self) -> list[str]:
        """What only the tests see."""
        return [comment.astext() for comment in self.tree.findall(nodes.comment)]


def all_documents() -> list[Document]:
    """Return every page, those in the root and the example first."""
    root = [*sorted(ROOT.glob("*.rst")), ROOT / "example_project" / "README.rst"]
    paths = [*root, *sorted(ROOT.glob("docs/**/*.rst"))]
    return [Document(path) for path in paths if "_build" not in path.parts]


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
