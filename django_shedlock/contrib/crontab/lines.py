"""The system checks of what a line of the crontab has beside its time and its call."""

import json
import re
from collections.abc import Iterator
from datetime import UTC
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.checks import CheckMessage, Warning

from django_shedlock.clocks import host_now
from django_shedlock.contrib.crontab.entries import CrontabEntry, cron_time_zone

DATE_FORMS = [
    separator.join(f"%{part}" for part in parts)
    for parts in ("Ymd", "dmY", "mdY", "ymd", "dmy", "mdy", "dbY", "Ybd")
    for separator in ("-", "_", ".", "/", "")
]
"""How people write a date into the name of a file, as ``strftime()`` has it."""


def find_line_breaks(where: str, text: str) -> Iterator[CheckMessage]:
    """Report what ends the line for cron, or hides it from django-crontab."""
    if re.search(r"#|(?<!\\)%", text):
        yield Warning(
            f"{where} has a % or #, which breaks the line of the crontab: {text!r}.",
            hint="cron ends the line at %, so write \\%. If the line has a #, "
            "django-crontab can't find it again to remove it.",
            id="shedlock.W026",
        )


def find_emptied_file(
    where: str, suffix: str, after: str = ""
) -> Iterator[CheckMessage]:
    """
    Warn of a file for the job's output that a skip leaves empty.

    ``after`` is what django-crontab writes into the crontab's line after the suffix.
    """
    # What the shell quotes, escapes or computes is no redirection. It stays as long.
    quoted = r"""'[^']*'|"(?:\\.|[^"\\])*"|\$\([^)]*\)|\$\{[^}]*\}|`[^`]*`|\\."""
    plain = re.sub(quoted, lambda part: "_" * len(part[0]), suffix)
    # The commands after this one write what they print, whether the job ran or not.
    end = re.search(r";|&&|\|\||(?<![>|])&(?!>)|$", plain)
    length = len(plain) if end is None else end.start()
    redirections = re.finditer(
        r"(?<!<)(?P<source>(?<!\S)[0-9]+|&)?(?P<operator>>>|>\||>&|>)\s*"
        r"(?P<target>[^\s;|&<>()]+)",
        plain[:length],
    )
    for found in redirections:
        if found["source"] not in {None, "1", "&"} or found["operator"] == ">>":
            continue
        target = suffix[slice(*found.span("target"))]
        is_descriptor = found["operator"] == ">&" and re.fullmatch("[0-9]+|-", target)
        if is_descriptor or not _is_kept(target):
            continue
        hint = "Append with >>, or let the job write the file itself."
        if fixed := _suffix_that_replaces(target, found, suffix, after):
            hint += " If it is no link and its directory is writable, you can also "
            hint += f"write {fixed!r}, "
            hint += "which replaces the file only if the job has printed something."
        yield Warning(
            f"{where} writes to {target} with >: the shell empties that file before "
            "the job starts, so a skip leaves it empty.",
            hint=hint,
            id="shedlock.W024",
        )
        return


def _is_kept(target: str) -> bool:
    """Return whether the target is a file that outlasts a start of the job."""
    path = re.sub(r"""['"\\]""", "", target)
    is_device = re.match("/dev/(?!shm/)|/proc/", path) is not None
    is_of_one_start = "$$" in path  # the shell's process id
    return not is_device and not is_of_one_start


def _suffix_that_replaces(
    target: str, redirection: re.Match[str], suffix: str, after: str
) -> str | None:
    """Return a suffix that replaces the target after the job; ``None`` if none can."""
    begin, end = redirection.span("target")
    others = f"{suffix[: redirection.start()]} {suffix[end:]}"
    is_alone = re.fullmatch(r"\s*(2>&1)?\s*", others) and not after.strip()
    is_for_bash = redirection["source"] == "&" or redirection["operator"] == ">&"
    # The suffix has the target four times, and the shell must not compute it anew.
    is_uncomputed = re.fullmatch(r"""([\w./~+@:,=-]|'[^']*'|"[^"$`\\]*")+""", target)
    is_like_an_option = target.lstrip("'\"").startswith("-")
    if not (is_alone and is_uncomputed) or is_for_bash or is_like_an_option:
        return None
    fresh = f"{target}.$$"
    writing = f"{suffix[:begin]}{fresh}{suffix[end:]}".strip()
    moving = f"if [ -s {fresh} ]; then mv {fresh} {target}; else rm -f {fresh}; fi"
    # A job that fails keeps its output and its exit status.
    return f"{writing}; result=$?; {moving}; exit $result"


def find_todays_date(entry: CrontabEntry) -> Iterator[CheckMessage]:
    """Warn of an entry that is another one tomorrow."""
    written = json.dumps([entry.args, entry.kwargs, entry.suffix])
    names = filter(None, [settings.TIME_ZONE, cron_time_zone()])
    zones = (UTC, *map(ZoneInfo, names))
    now = host_now()
    for date in {now.astimezone(zone).date() for zone in zones}:
        for form in DATE_FORMS:
            text = date.strftime(form)
            if not re.search(rf"(?<![0-9]){re.escape(text)}(?![0-9])", written):
                continue
            hint = "Let the job find the date out itself."
            if text in (suffix := entry.suffix or ""):
                by_shell = "$(date +{})".format(form.replace("%", "\\%"))
                fixed = suffix.replace(text, by_shell)
                hint = f"Let the shell write the date: {fixed!r}."
            yield Warning(
                f"{entry} has today's date ({text}). django-crontab knows it by a hash "
                "of all its parts, so from tomorrow on, cron's line starts nothing.",
                hint=hint,
                id="shedlock.W024",
            )
            return
