"""The documentation: its examples run, and nothing is missing in it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles

import django_shedlock
from django_shedlock import conf
from django_shedlock.management.commands.shedlock import COLUMNS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.rst"),
        *(ROOT / "docs").rglob("*.rst"),
        ROOT / "example_project" / "README.rst",
    ]
)
BEHAVIOURS = 16


class Ignored(Directive):
    """A directive of Sphinx, which docutils does not know."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = {"maxdepth": directives.unchanged, "members": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        return []


@pytest.fixture(scope="module", autouse=True)
def sphinx_in_docutils() -> None:
    for name in (
        "toctree",
        "autofunction",
        "autoclass",
        "autoexception",
        "automodule",
    ):
        directives.register_directive(name, Ignored)
    for name in ("ref", "doc"):
        roles.register_generic_role(name, nodes.literal)


@pytest.fixture
def sigterm_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path, language: str) -> list[str]:
    """Return the document's code blocks in this language."""
    tree = publish_doctree(
        document.read_text(encoding="utf-8"),
        source_path=str(document),
        settings_overrides={"halt_level": 2, "report_level": 2, "output_encoding": "x"},
    )
    return [
        block.astext()
        for block in tree.findall(nodes.literal_block)
        if language in block["classes"]
    ]


def text(*documents: str) -> str:
    return "\n".join((ROOT / d).read_text(encoding="utf-8") for d in documents)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("sigterm_handler")
@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_python_examples_run(document: Path) -> None:
    """Each document's examples run in order, as one program."""
    namespace: dict[str, Any] = {"__name__": "example"}
    for block in blocks(document, "python"):
        exec(compile(block, name(document), "exec"), namespace)
    assert ("django_shedlock" in namespace) or blocks(document, "python") is not None


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_shell_examples_are_commands_that_exist(document: Path) -> None:
    """Each manage.py command is there, and takes what is written behind it."""
    for block in blocks(document, "sh"):
        for line in re.findall(r"^python manage.py (.+)$", block, re.MULTILINE):
            command, *args = line.replace("DURATION", "5m").split()
            if command == "send_digest":
                continue  # the reader's own
            app = get_commands()[command]
            parser = load_command_class(str(app), command).create_parser("", command)
            assert parser.parse_args(args)


def test_each_behaviour_is_numbered() -> None:
    """The README lists what to rely on, from one to sixteen."""
    section = text("README.rst").split("Behaviour\n=")[1].split("\nSettings\n=")[0]
    numbers = re.findall(r"^(\d+)\. ", section, re.MULTILINE)
    assert numbers == [str(number) for number in range(1, BEHAVIOURS + 1)]


def test_the_two_commands_are_single_lines() -> None:
    """A newcomer copies each of the two commands as one line."""
    lines = [
        line.strip()
        for line in text("README.rst").splitlines()
        if line.strip().startswith("python3 -m venv")
    ]
    assert [line.split("&&")[-1].strip() for line in lines] == [
        ".venv/bin/python example_project/manage.py demo",
        ".venv/bin/python -m tests",
    ]


def check_ids(source: str) -> set[str]:
    return set(re.findall(r"shedlock\.[EW]\d{3}", source))


def test_each_check_has_a_heading() -> None:
    """The ids in the code, and the headings of the reference, are the same."""
    sources = (ROOT / "django_shedlock").rglob("*.py")
    in_code = check_ids("".join(s.read_text(encoding="utf-8") for s in sources))
    headings = re.findall(
        r"^(shedlock\.[EW]\d{3})\n=+$", text("docs/reference/checks.rst"), re.MULTILINE
    )
    assert headings == sorted(in_code)


def test_each_setting_is_documented() -> None:
    """README and reference have every setting, with its default."""
    readme, reference = text("README.rst"), text("docs/reference/settings.rst")
    for setting in conf.SETTINGS:
        assert f"``{setting.name}``" in readme
        assert f"{setting.name}\n===" in reference
        if not isinstance(setting.default, dict):
            assert repr(setting.default).replace("'", '"') in reference


def test_each_public_name_is_documented() -> None:
    """The reference has every public name."""
    reference = text("docs/reference/api.rst")
    missing = [
        public
        for public in django_shedlock.__all__
        if not re.search(rf"django_shedlock\.{public}$", reference, re.MULTILINE)
    ]
    assert missing == []


def test_tutorial_shows_the_real_columns() -> None:
    """The table in the tutorial has the command's own columns."""
    header = next(
        line for line in text("docs/tutorial.rst").splitlines() if "LOCKED BY" in line
    )
    assert re.split(r"\s{2,}", header.strip()) == list(COLUMNS)


def test_tests_named_in_contributing_exist() -> None:
    """Every tox environment that CONTRIBUTING names is in tox.ini."""
    environments = re.findall(r"tox run -e ([\w-]+)", text("CONTRIBUTING.rst"))
    tox = text("tox.ini")
    assert environments
    for environment in environments:
        factors = environment.split("-")
        assert f"[testenv:{environment}]" in tox or all(
            re.sub(r"\D+$|^\D+", "", factor) in tox for factor in factors
        )
