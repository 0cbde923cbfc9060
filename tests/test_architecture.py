"""The layers of the package, and the page that shows them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT


def layers() -> list[list[str]]:
    """Return what stands on each layer, the top one first, as import-linter has it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [found] = [
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == ["django_shedlock"]
    ]
    return [layer.split(" : ") for layer in found]


def test_page_shows_the_layers() -> None:
    """The picture on the page of the architecture shows what import-linter checks."""
    path = ROOT / "docs" / "explanation" / "architecture.rst"
    shown = re.findall(
        r'\[label = "(\d+)  [^"\\]*\\n([^"\\]*)', path.read_text(encoding="utf-8")
    )
    names = [" · ".join(layer) for layer in layers()]
    assert shown == [(str(len(names) - n), each) for n, each in enumerate(names)]


DISCOVERED_IN_APPS = {
    "actors": "dramatiq",
    "cron": "django-cron",
    "documents": "django-elasticsearch-dsl",
    "huey_tasks": "huey",
    "indexes": "django-haystack",
    "jobs": "django-extensions",
    "receivers": "projects that import them in every app",
    "rules": "django-rules",
    "schema": "graphene-django",
    "search_indexes": "django-haystack",
    "tasks": "Celery, huey, django-tasks and django-q2",
    "translation": "django-modeltranslation",
}
"""Modules that popular apps import from each installed app, and one that does."""
APPS = [
    "django_shedlock",
    "django_shedlock.beat",
    "django_shedlock.console",
    "django_shedlock.contrib.celery",
    "django_shedlock.contrib.crontab",
    "django_shedlock.contrib.opentelemetry",
    "django_shedlock.contrib.pings",
    "django_shedlock.contrib.sentry",
]


@pytest.mark.parametrize("app", APPS)
def test_no_app_has_a_module_that_others_discover(app: str) -> None:
    """A module with such a name would be taken for the other package's plug-in."""
    folder = ROOT.joinpath(*app.split("."))
    names = {path.stem for path in folder.iterdir() if path.stem != "__pycache__"}
    assert names & set(DISCOVERED_IN_APPS) == set()


DEFINED_OFTEN = {
    "Command": "Django looks for this class in each module of a command",
}


def defined_names(node: ast.stmt) -> list[str]:
    """Return the public class or the constants that a statement of a module defines."""
    if isinstance(node, ast.ClassDef):
        return [] if node.name.startswith("_") else [node.name]
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    names = [
        each.id
        for target in targets
        if target
        for each in ast.walk(target)
        if isinstance(each, ast.Name)
    ]
    return [name for name in names if re.fullmatch("[A-Z][A-Z0-9_]+", name)]


def test_each_name_is_defined_once() -> None:
    """A reader who searches for a constant or a class finds one thing."""
    modules = defaultdict(set)
    for path in (ROOT / "django_shedlock").rglob("*.py"):
        if "migrations" not in path.parts:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                for name in defined_names(node):
                    modules[name].add(str(path.relative_to(ROOT)))
    twice = {name for name, paths in modules.items() if len(paths) > 1}
    assert {name: sorted(modules[name]) for name in twice - DEFINED_OFTEN.keys()} == {}
    assert DEFINED_OFTEN.keys() <= twice


PAGE = ROOT / "docs" / "explanation" / "architecture.rst"


DOCUMENTED = {"_asdict", "_exit", "_meta", "_replace", "_state"}
"""Private names that Python or Django documents."""


def parsed_modules() -> dict[str, ast.Module]:
    """Return the code of each module of the package, by its path in it."""
    package = ROOT / "django_shedlock"
    return {
        path.relative_to(package).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in package.rglob("*.py")
    }


def private_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Return each private name in a part of the code, and how it is used there."""
    names: list[tuple[str, str]] = []
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            names = [(name, "defined")]
        case ast.Name(id=name, ctx=ast.Store()):
            names = [(name, "defined")]
        case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store()):
            names = [(name, "defined")]
        case ast.Attribute(attr=name, value=ast.Call(func=ast.Name(id="super"))):
            names = [(name, "inherited")]
        case ast.Attribute(attr=name):
            names = [(name, "used")]
        case ast.Import(names=imported):
            names = [(each.name, "used") for each in imported]
        case ast.ImportFrom(module=module, names=imported):
            names = [(each.name, "used") for each in imported]
            names += [(part, "used") for part in (module or "").split(".")]
    yield from (each for each in names if re.fullmatch("_[A-Za-z].*", each[0]))


def private_names_of_others() -> dict[str, set[str]]:
    """Return private names that the package uses, and does not define itself."""
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path, code in parsed_modules().items():
        for node in ast.walk(code):
            for found in private_names(node):
                places[found].append(path)
    found = defaultdict(set)
    for (name, how), paths in places.items():
        # What overrides a name of ours has the same name as what it overrides.
        needed = {"used": 1, "inherited": 2}.get(how, 0)
        if name not in DOCUMENTED and len(places.get((name, "defined"), ())) < needed:
            found[name] |= set(paths)
    return found


def test_page_lists_the_undocumented_behaviour_we_depend_on() -> None:
    """Each private name of Django or Python is on the page, with its files."""
    page = PAGE.read_text(encoding="utf-8")
    title = "Undocumented behaviour we depend on"
    table = page.partition(title)[2].partition("I want to add")[0]
    rows = [row.split("\n     - ")[:2] for row in table.split("\n   * - ")[2:]]
    listed = defaultdict(set)
    for what, where in rows:
        names = set(re.findall(r"``(\w+)``", what))
        for place in re.findall(r"``(\w[\w/]+\.py)``", where):
            source = (ROOT / "django_shedlock" / place).read_text(encoding="utf-8")
            for name in (used := {name for name in names if name in source}):
                listed[name].add(place)
            assert used, (what, place)
        assert names <= listed.keys(), what
    for name, places in private_names_of_others().items():
        assert places == listed[name], name


WORDS_OF_TESTS = re.compile(
    "(?<![a-z])(test|tests|testing|testcase|pytest|unittest|outbox|mirror)(?![a-z])",
    re.IGNORECASE,
)
THE_SEAM = "in_tests.py"
MEANS_OTHER_TESTS = {
    "registry/commands.py": {"test"},  # a command that has no lock
    "registry/discovery.py": {"is_test", "test", "tests"},  # the project's modules
}


def words_of(node: ast.AST) -> list[str]:
    """Return the names and texts that a part of the code has of its own."""
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word):
            return [word]
        case ast.FunctionDef(name=word) | ast.ClassDef(name=word):
            return [word]
        case ast.keyword(arg=str(word)) | ast.Constant(value=str(word)):
            return [word]
        case ast.Import(names=names):
            return [each.name for each in names]
        case ast.ImportFrom(module=module, names=names):
            return [module or "", *(each.name for each in names)]
    return []


def test_one_module_knows_of_tests() -> None:
    """The rest of the package asks it about connections, and not where it runs."""
    modules = parsed_modules()
    assert "django.test.utils" in {
        word for n in ast.walk(modules[THE_SEAM]) for word in words_of(n)
    }
    found = defaultdict(set)
    for path, code in modules.items():
        if path == THE_SEAM or path.startswith("testing/"):
            continue
        texts = {  # docstrings, which may explain
            node.value for node in ast.walk(code) if isinstance(node, ast.Expr)
        }
        for node in ast.walk(code):
            for word in words_of(node) if node not in texts else ():
                if WORDS_OF_TESTS.search(word) and word != "django_shedlock.in_tests":
                    found[path].add(word)
    assert found == MEANS_OTHER_TESTS


ROWS_BY_KIND = {"console/monitoring/evidence.py"}
"""Reads the rows of the audit log that are releases."""


def kinds_in_tests(code: ast.AST) -> set[str]:
    """Return the kinds of action that comparisons, sets and patterns mention."""
    places = (ast.Compare, ast.Set, ast.MatchValue, ast.BinOp)
    return {
        node.attr
        for place in ast.walk(code)
        if isinstance(place, places)
        for node in ast.walk(place)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ActionKind"
    }


def test_no_module_tests_for_a_kind_of_action() -> None:
    """What differs between operators' actions is in their classes."""
    example = "if action.kind != ActionKind.RUN or found & {ActionKind.PAUSE}: pass"
    assert kinds_in_tests(ast.parse(example)) == {"RUN", "PAUSE"}
    found = {path for path, code in parsed_modules().items() if kinds_in_tests(code)}
    assert found == ROWS_BY_KIND
    templates = (ROOT / "django_shedlock").rglob("*.html")
    texts = {path.name: path.read_text("utf-8") for path in templates}
    by_kind = re.compile(r"(action|cure|button)\.kind")
    assert [name for name, text in texts.items() if by_kind.search(text)] == []
