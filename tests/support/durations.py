"""What is left of a lease, told a moment later."""

from __future__ import annotations

import re
from datetime import timedelta

from django_shedlock.durations import format_duration, parse_duration

MINUTE = timedelta(minutes=1)


def rounded_up(text: str) -> str:
    """Round its durations up to whole minutes, so that ``1h59m58s`` becomes ``2h``."""

    def up(found: re.Match[str]) -> str:
        left = parse_duration(found[0])
        return format_duration(-(-left // MINUTE) * MINUTE)

    return re.sub(r"\b(\d+h)?(\d+m)?\d+s\b", up, text)
