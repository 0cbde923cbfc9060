"""The state of a schedule's ticks as a text, for stores that keep texts."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime

from django_shedlock.clocks import aware
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState


def parse_known(schedule: str | None) -> Schedule | None:
    """
    Return the schedule of this text; ``None`` where it can't be read.

    Nobody can without cronsim, nor what another version or program wrote.
    """
    with suppress(ImportError, ValueError):
        return Schedule.parse(schedule) if schedule else None
    return None


def to_text(state: ScheduleState) -> str:
    """Return the state as JSON; an empty text if nothing is known of any tick."""
    known = {
        "schedule": state.schedule and str(state.schedule),
        "tick": _instant(state.tick),
        "due_at": _instant(state.due_at),
        "caught_up": _instant(state.caught_up),
    }
    known = {key: value for key, value in known.items() if value is not None}
    return json.dumps(known) if known else ""


def from_text(text: str) -> ScheduleState:
    """Return the state of ``to_text()``; ``ValueError`` if it is none."""
    if not text:
        return ScheduleState()
    known = json.loads(text)
    if not isinstance(known, dict):
        raise ValueError(f"{text!r} is no state of a schedule")
    return ScheduleState(
        schedule=parse_known(known.get("schedule")),
        tick=_moment(known.get("tick")),
        due_at=_moment(known.get("due_at")),
        caught_up=_moment(known.get("caught_up")),
    )


def _instant(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else aware(datetime.fromisoformat(text))
