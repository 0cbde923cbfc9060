"""The translations: complete, compiled, and shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from gettext import GNUTranslations
from pathlib import Path

import pytest
from django.test import Client, override_settings
from django.urls import reverse
from django.utils.translation import gettext, override

from django_shedlock.locks.status import RunOutcome
from tests.support.lateness import DAILY, be_overdue
from tests.support.locks import add_run, take
from tests.support.operators import ALL, CHANGE, LIST, RUNS, ask, operator
from tests.support.paths import ROOT

PACKAGE = ROOT / "django_shedlock"
CONSOLE = PACKAGE / "console"
FOLDERS = (PACKAGE, CONSOLE)
"""Each app with texts has catalogs of its own."""
LANGUAGES = ("en", "de")
NONSENSE = "Unsinn"
UTF8 = "Content-Type: text/plain; charset=UTF-8\\n"

needs_gettext = pytest.mark.skipif(
    shutil.which("msgfmt") is None, reason="gettext is not installed"
)


def catalog(folder: Path, language: str) -> Path:
    return folder / "locale" / language / "LC_MESSAGES" / "django.po"


def short(words: Iterable[str]) -> list[str]:
    """Return the messages of one or two words."""
    return sorted(word for word in words if len(word.split()) <= 2)


def messages(path: Path) -> set[tuple[str, str]]:
    """Return each message with its context, but for the header."""
    text = re.sub(r'"\n"', "", path.read_text(encoding="utf-8"))
    found = re.findall(r'^(?:msgctxt "(.*)"\n)?msgid "(.+)"$', text, re.MULTILINE)
    return set(found)


def test_languages() -> None:
    """The catalogs are English and German."""
    for folder in FOLDERS:
        assert {path.name for path in (folder / "locale").iterdir()} == set(LANGUAGES)


@needs_gettext
def test_catalogs_have_what_the_code_says(tmp_path: Path) -> None:
    """Django finds no message in the package that a catalog lacks, and none too few."""
    copy = tmp_path / "django_shedlock"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "django", "makemessages", "--no-obsolete"]
    copies = (copy, copy / "console")
    for language in LANGUAGES:
        for folder in copies:
            source = catalog(folder, language)
            header = source.read_text(encoding="utf-8").split("\n\n")[0]
            source.write_text(header, encoding="utf-8")
        command += ["--locale", language]
    # As a translator runs it: our settings can't be imported from there.
    ours = {"DJANGO_SETTINGS_MODULE"}
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    subprocess.run(command, cwd=copy, env=environment, check=True, capture_output=True)
    for language in LANGUAGES:
        for found, folder in zip(copies, FOLDERS, strict=True):
            known = messages(catalog(folder, language))
            assert messages(catalog(found, language)) == known


def test_no_message_hides_in_an_f_string() -> None:
    """No f-string contains a message, since some gettext versions don't look there."""
    hidden = re.compile(r"\{[np]*gettext")
    sources = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    assert len(sources) > 100
    assert [path for path, text in sources.items() if hidden.search(text)] == []


@needs_gettext
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_catalog_is_complete_and_compiled(
    language: str, folder: Path, tmp_path: Path
) -> None:
    """Everything is translated, nothing is fuzzy, and the compiled file is of today."""
    source = catalog(folder, language)
    compiled = tmp_path / "django.mo"
    command = ["msgfmt", "--check-format", "--statistics", "-o", compiled, source]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert re.fullmatch(r"\d+ translated messages\.\n", done.stderr), done.stderr
    assert translated(source.with_suffix(".mo")) == translated(compiled)


def translated(compiled: Path) -> list[object]:
    """Return what a compiled catalog says, in whatever bytes a gettext wrote it."""
    with compiled.open("rb") as file:
        translations = GNUTranslations(file)
    return [translations._catalog, translations.info()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_short_messages_have_a_context(language: str, folder: Path) -> None:
    """
    Each message of one or two words has a context.

    Another app's catalog may use the same words with another meaning.
    """
    without = [m for c, m in messages(catalog(folder, language)) if c != "shedlock"]
    assert without
    assert short(without) == []


@needs_gettext
@pytest.mark.once
@pytest.mark.django_db
def test_another_catalog_changes_no_word_of_ours(tmp_path: Path) -> None:
    """The words of another app have no context, and Django has one catalog for all."""
    client: Client = operator(*ALL)
    take("job")
    add_run("job", RunOutcome.FAILED)
    # Django's own pages have this one, too.
    words = {m for f in FOLDERS for _, m in messages(catalog(f, "de"))} - {"Home"}
    entries = "".join(f'msgid "{m}"\nmsgstr "{NONSENSE}"\n\n' for m in short(words))
    source = catalog(tmp_path, "de")
    source.parent.mkdir(parents=True)
    source.write_text(f'msgid ""\nmsgstr "{UTF8}"\n\n{entries}', encoding="utf-8")
    command = ["msgfmt", "-o", source.with_suffix(".mo"), source]
    subprocess.run(command, check=True)
    with override_settings(LANGUAGE_CODE="de", LOCALE_PATHS=[tmp_path / "locale"]):
        with override("de"):
            assert gettext("Release") == NONSENSE
        pages = [
            client.get(reverse(LIST)),
            client.get(reverse(CHANGE, args=["job"])),
            client.get(reverse(RUNS)),
            ask(client, "job"),
        ]
        texts = [page.content.decode() for page in pages]
    assert "Freigeben" in texts[3]
    assert not any(NONSENSE in text for text in texts)


@pytest.mark.once
@pytest.mark.django_db
def test_pages_speak_the_language() -> None:
    """The list, a lock, its runs and the confirmation are in the reader's language."""
    client: Client = operator(*ALL)
    take("job")
    add_run("job", RunOutcome.FAILED)
    take("late").release()
    be_overdue("late")
    with override_settings(LANGUAGE_CODE="de"):
        pages = [
            client.get(reverse(LIST)),
            client.get(reverse(CHANGE, args=["job"])),
            client.get(reverse(CHANGE, args=["late"])),
            client.get(reverse(RUNS)),
            ask(client, "job"),
        ]
    texts = [page.content.decode() for page in pages]
    assert all('dir="ltr"' in text for text in texts)
    german = ("Sperren", "läuft", "fehlgeschlagen", "Frist", "Freigeben", "überfällig")
    for word in german:
        assert any(word in text for text in texts), word
    # A cron expression is read from the left everywhere.
    assert f'<code dir="ltr">{DAILY}</code>' in texts[2]
    for english in (
        "running",
        "failed",
        "Reason",
        "Last runs",
        "longer than",
        "overdue",
    ):
        assert not any(f">{english}" in text for text in texts), english
