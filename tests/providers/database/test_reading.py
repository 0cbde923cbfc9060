"""Names and shell patterns: in Python, and as a condition in the database."""

from __future__ import annotations

import pytest

from django_shedlock.locks.patterns import matches_any
from django_shedlock.models import LockRecord
from django_shedlock.providers.base import LockQuery
from django_shedlock.providers.database.reading import may_match
from django_shedlock.sql.fields import DatabaseNow

NAMES = ("import:1", "import:2", "Import:3", "100%", "a_b", "aXb", "[x]", "x", "*", "é")
NAMES += ("xy", "]y", "job[1]")


@pytest.mark.once
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("import:*", {"import:1", "import:2"}),
        ("?mport:[12]", {"import:1", "import:2"}),
        ("*:3", {"Import:3"}),
        ("[!i]mport:3", {"Import:3"}),
        ("100%", {"100%"}),
        ("a_b", {"a_b"}),
        ("a?b", {"a_b", "aXb"}),
        ("[x]", {"[x]", "x"}),
        ("[[]x*", {"[x]"}),
        ("[", set()),
        ("[]x]y", {"xy", "]y"}),
        ("[!]a]y", {"xy"}),
        ("job[1]", {"job[1]"}),
        ("*", set(NAMES)),
        ("", set()),
    ],
)
def test_names_that_match(pattern: str, names: set[str]) -> None:
    """A pattern is a shell's; a name that looks like one also stands for itself."""
    assert {name for name in NAMES if matches_any(name, [pattern])} == names


@pytest.mark.once
def test_no_pattern_matches_everything() -> None:
    """A query without names wants all."""
    assert LockQuery().accepts_name("job")
    assert LockQuery(patterns=("import:*", "j*")).accepts_name("job")
    assert not LockQuery(patterns=("import:*",)).accepts_name("job")
    assert not LockQuery(ignored=("j?b",)).accepts_name("job")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "patterns",
    [
        [],
        ["import:*"],
        ["?mport:[12]"],
        ["*:*"],
        ["[!i]mport:3", "a?b"],
        ["100%", "[x]", "*"],
        ["[[]x*"],
        ["["],
        ["[]x]y"],
        ["[!]a]y"],
        ["job[1]"],
    ],
)
def test_database_leaves_out_no_match(patterns: list[str]) -> None:
    """What matches in Python fulfils the condition on each database."""
    now = DatabaseNow()
    LockRecord.objects.bulk_create(
        LockRecord(name=name, locked_by="", locked_at=now, lock_until=now)
        for name in NAMES
    )
    read = LockRecord.objects.filter(may_match(patterns))
    names = set(read.values_list("name", flat=True))
    assert names >= {
        name for name in NAMES if LockQuery(patterns=tuple(patterns)).accepts_name(name)
    }


@pytest.mark.django_db
def test_database_leaves_out_the_others() -> None:
    """The beginning of a pattern, and its other parts, are conditions."""
    now = DatabaseNow()
    for name in ("import:1", "export:1", "import:2"):
        LockRecord.objects.create(
            name=name, locked_by="", locked_at=now, lock_until=now
        )
    for pattern, number in [
        ("import:*", 2),
        ("*port:1", 2),
        ("*:2", 1),
        ("job", 0),
        ("import", 0),
    ]:
        assert LockRecord.objects.filter(may_match([pattern])).count() == number
