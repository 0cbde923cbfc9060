"""The layout: its floors, and the page that shows them."""

from __future__ import annotations

import re
import tomllib
from html import unescape

from tests.support.paths import ROOT

PACKAGE = ROOT / "django_shedlock"
FILES = [
    path.relative_to(PACKAGE)
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0] not in {"migrations", "test"}
    and path.stat().st_size
]
"""Those with something in them; migrations and what tests use do not count."""


def floors() -> list[list[str]]:
    """Return what stands on each floor, the top one first, as import-linter has it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [layers] = [
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == ["django_shedlock"]
    ]
    return [layer.split(" : ") for layer in layers]


def test_everything_stands_on_one_of_eight_floors() -> None:
    """A new module of the first level has to say on which."""
    standing = [name for floor in floors() for name in floor]
    assert len(floors()) == 8
    first_level = {path.parts[0].removesuffix(".py") for path in FILES} | {"test"}
    assert sorted(standing) == sorted(first_level - {"__init__"})


def test_page_shows_the_floors() -> None:
    """The picture in docs/explanation/house.rst shows what import-linter checks."""
    page = (ROOT / "docs" / "explanation" / "house.rst").read_text(encoding="utf-8")
    shown = re.findall(r'\[label = "(\d)  [^"\\]*\\n([^"\\]*)', page)
    assert shown == [
        (str(8 - place), " · ".join(floor)) for place, floor in enumerate(floors())
    ]


def test_picture_of_the_repository_is_that_of_the_page() -> None:
    """CONTRIBUTING shows it where no Sphinx draws it."""
    picture = (ROOT / "docs" / "images" / "house.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text [^>]*>(.*?)</text>", picture)
    lines = [unescape(text).replace("\xa0", " ") for text in texts]
    shown = [line for line in lines if line in {" · ".join(each) for each in floors()}]
    assert shown == [" · ".join(floor) for floor in floors()]
    assert [line[0] for line in lines if line[0].isdigit()] == [*"87654321"]
