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


def find_emptied_file(where: str, suffix: str) -> Iterator[CheckMessage]:
    """Warn of a file for the job's output that a skip leaves empty."""
    # What the shell quotes, escapes or computes is no redirection. It stays as long.
    quoted = r"""'[^']*'|"(?:\\.|[^"\\])*"|\$\([^)]*\)|`[^`]*`|\\."""
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
        begin, after = found.span("target")
        target = suffix[begin:after]
        is_descriptor = found["operator"] == ">&" and re.fullmatch("[0-9]+|-", target)
        if is_descriptor or re.match("/dev/(?!shm/)", target):
            continue
        fresh = f"{target}.$$"
        writing = f"{suffix[:begin]}{fresh}{suffix[after:length]}".strip()
        moving = f"[ -s {fresh} ] && mv {fresh} {target} || rm -f {fresh}"
        fixed = f"{writing} && {moving} {suffix[length:]}".strip()
        yield Warning(
            f"{where} writes to {target} with >: the shell empties that file before "
            "the job starts, so a skip leaves it empty.",
            hint=f"Write {fixed!r}, which replaces the file only if the job has "
            "printed something. Or append with >>, or let the job write the file.",
            id="shedlock.W024",
        )
        return


def find_todays_date(entry: CrontabEntry) -> Iterator[CheckMessage]:
    """Warn of an entry that is another one tomorrow."""
    written = json.dumps([entry.args, entry.kwargs, entry.suffix])
    zones = (UTC, ZoneInfo(settings.TIME_ZONE), ZoneInfo(cron_time_zone()))
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
