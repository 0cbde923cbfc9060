"""The floors of the requirements, which the environment ``lowest`` of tox installs."""

from __future__ import annotations

import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["dependency-groups"]
TOX = (ROOT / "tox.ini").read_text(encoding="utf-8")


def required_by(group: str) -> Iterator[str]:
    """Return the requirements of the group, and of those that it includes."""
    for each in GROUPS[group]:
        if isinstance(each, str):
            yield each
        else:
            yield from required_by(each["include-group"])


def floors(groups: Iterable[str]) -> dict[str, set[str]]:
    """Return the floors of each package that users or these groups require."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    lists = [project["dependencies"], *extras, *map(required_by, groups)]
    found: dict[str, set[str]] = defaultdict(set)
    for requirement in (Requirement(text) for texts in lists for text in texts):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue  # this Python can't have it
        bounds = {each.operator: each.version for each in requirement.specifier}
        found[canonicalize_name(requirement.name)].add(bounds.get(">=", "none"))
    return found


def test_group_has_what_it_includes() -> None:
    """The environment of the lowest versions installs included groups as well."""
    assert set(required_by("test")) < set(required_by("test-all"))


def test_package_has_one_floor() -> None:
    """Each requirement has a floor, the same one wherever its package is required."""
    found = floors(GROUPS)
    several = {name: each for name, each in found.items() if len(each) != 1}
    assert several == {}
    assert [name for name, each in found.items() if each == {"none"}] == []


def test_tox_begins_at_the_floor_of_django() -> None:
    """The oldest Django of tox is the oldest one that the package allows."""
    assert set(re.findall("django52: Django>=([^,]+),", TOX)) == floors([])["django"]


@pytest.mark.parametrize(
    "page", ["README.rst", "CHANGELOG.rst", "docs/project/versions.rst"]
)
def test_page_names_the_floor_of_django(page: str) -> None:
    """Readers learn the floors of Python and Django as they are."""
    named = re.findall(r"([\d.]+) or newer", (ROOT / page).read_text(encoding="utf-8"))
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert set(named) - {python} == floors([])["django"]


# Left out and not skipped, since all other environments have newer releases.
if os.environ.get("TOX_ENV_NAME") == "lowest":

    def test_floors_are_installed() -> None:
        """A floor that no release has, or that others exclude, would be tried never."""
        _, environment = TOX.split("[testenv:lowest]")
        for name, [floor] in floors(
            re.findall(r"--group ([\w-]+)", environment)
        ).items():
            assert Version(version(name)) == Version(floor), name
