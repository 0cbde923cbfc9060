"""A language from right to left, which nobody has to translate."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import ascii_letters

from django.test import override_settings

from tests.support.paths import ROOT

PACKAGE = ROOT / "django_shedlock"
ENGLISH = [
    folder / "locale" / "en" / "LC_MESSAGES" / "django.po"
    for folder in (PACKAGE, PACKAGE / "console")
]
LANGUAGE, LOCALE = "ar-xb", "ar_XB"
"""What Unicode calls English texts that run from right to left."""
ALPHABET = "ابتثجحخدذرزسشصضطظعغفقكلمنه"
LETTERS = str.maketrans(ascii_letters, ALPHABET + ALPHABET)
KEPT = re.compile(r"(%\(\w+\)s|%%|<[^>]+>|\\.)")
"""Placeholders, HTML and escapes."""
TRANSLATION = re.compile(r'^(msgstr(?:\[\d\])?) "(.*)"$', re.MULTILINE)


def turned(text: str) -> str:
    """Return the text with an Arabic letter for each English one."""
    parts = KEPT.split(text)
    parts[::2] = [part.translate(LETTERS) for part in parts[::2]]
    return "".join(parts)


@contextmanager
def right_to_left(folder: Path) -> Iterator[None]:
    """Make the language in this folder from the English catalog, and speak it."""
    source = folder / LOCALE / "LC_MESSAGES" / "django.po"
    source.parent.mkdir(parents=True)
    header, known = "", {}
    for catalog in ENGLISH:
        joined = re.sub(r'"\n"', "", catalog.read_text(encoding="utf-8"))
        header, *entries = joined.strip().split("\n\n")
        known |= {entry.partition("msgstr")[0]: entry for entry in entries}
    text = "\n\n".join(known.values())
    text = TRANSLATION.sub(lambda found: f'{found[1]} "{turned(found[2])}"', text)
    source.write_text(f"{header}\n\n{text}\n", encoding="utf-8")
    compiled = source.with_suffix(".mo")
    subprocess.run(["msgfmt", "--check-format", "-o", compiled, source], check=True)
    with override_settings(
        LANGUAGE_CODE=LANGUAGE,
        LANGUAGES=[(LANGUAGE, "from right to left")],
        LOCALE_PATHS=[folder],
    ):
        yield
