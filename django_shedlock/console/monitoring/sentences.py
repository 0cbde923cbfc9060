"""The sentence of each kind of finding, in the language that is active."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext, pgettext

from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.durations import format_duration, format_measured, format_rough
from django_shedlock.locks.lock import process_of, split_identity

Params = Mapping[str, Any]
"""What the sentence of a finding needs to know."""

SHOWN_NAME_LIMIT = 3
IN_VALUE = ".\0"
"""Stands for a full stop and a space inside a value."""


def sentence_of(kind: Kind, params: Params) -> str:
    """Return who, since when, and what it means, in the active language."""
    match kind:
        case Kind.UNREACHABLE:
            return str(params["error"])
        case Kind.SILENT:
            return _silent(params)
        case Kind.OVERDUE:
            return _overdue(params)
        case Kind.FAILED | Kind.TIMED_OUT | Kind.LOST | Kind.ABANDONED:
            return _bad_end(kind, params)
        case Kind.EXPIRED:
            return _expired(params)
        case Kind.LONG:
            return _long(params)
        case Kind.REQUEST:
            return _request(params)
        case Kind.PASSED_OVER:
            return _passed_over(params)
        case Kind.PAUSED:
            return _paused(params)
        case Kind.UNREADABLE:
            text = gettext("Its record can't be read: %(why)s. See %(record)s.")
            return text % params
        case Kind.HISTORY:
            return _history(params)
        case Kind.CLOCK:
            return _clock(params)
        case Kind.MORE:
            text = gettext(
                "More than %(count)s locks may need attention: these are the most "
                "urgent ones. --ignore leaves names out."
            )
            return text % params


def headline_of(kind: Kind, params: Params) -> str:
    """Return the first sentence; a full stop in a name or a reason does not end it."""
    protected = {key: _protected(value) for key, value in params.items()}
    first, stop, _ = sentence_of(kind, protected).partition(". ")
    return f"{first}{stop.strip()}".replace(IN_VALUE, ". ")


def _protected(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_protected, value))
    return value.replace(". ", IN_VALUE) if isinstance(value, str) else value


def what_to_look_at(run: str) -> str:
    """Say on which host an operator finds out whether this run still goes on."""
    host, pid = split_identity(run)
    if pid is None:
        text = gettext("Look at %(host)s: does its process still run? If it is gone:")
        return text % {"host": host}
    text = gettext(
        "Look at host %(host)s: does process %(pid)s still run (ps -p %(pid)s)? If it "
        "is gone:"
    )
    return text % {"host": host, "pid": pid}


def command_to_look(run: str) -> str:
    """Return the command that shows this run's process on its host, if it has an id."""
    _, pid = split_identity(run)
    return "" if pid is None else f"ps -p {pid} -o pid,lstart,etime,args"


def where_to_look(run: str) -> str:
    """Say where an operator runs that command; ``%(host)s`` stands for the host."""
    if command_to_look(run):
        return gettext("On host %(host)s, run:")
    return gettext("Check on %(host)s whether the process still runs.")


def what_to_look_for() -> str:
    """Say what an operator finds out before a job is run by hand."""
    return gettext("Look whether its job has run meanwhile. If it has not:")


def raised(message: str) -> str:
    """Return the sentence about what a run raised."""
    return gettext("It raised: %(text)s.") % {"text": message}


def acknowledged(
    operator: str, at: datetime, until: datetime | None, reason: str
) -> str:
    """Return by whom, when and why a finding was acknowledged."""
    text = gettext("by %(who)s at %(at)s")
    if until is not None:
        text = gettext("by %(who)s at %(at)s, until %(until)s")
    told = text % {
        "who": operator or gettext("an unnamed operator"),
        "at": local_text(at),
        "until": _instant(until),
    }
    return f"{told}: {reason}" if reason else told


def counts_as_gone() -> str:
    """Return that the process of a finding is no longer suspected."""
    return gettext("Its process counts as gone.")


def some_names(names: list[str]) -> str:
    """Return the first of the names, and how many others there are."""
    first = ", ".join(names[:SHOWN_NAME_LIMIT])
    if (left := len(names) - SHOWN_NAME_LIMIT) <= 0:
        return first
    return gettext("%(names)s and %(count)s more") % {"names": first, "count": left}


def _instant(moment: datetime | None) -> str:
    return "" if moment is None else local_text(moment)


def _at(moment: datetime | None) -> str:
    """Return when, as a part of a sentence; empty if nobody knows."""
    if moment is None:
        return ""
    return pgettext("shedlock", " at %(at)s") % {"at": local_text(moment)}


def _silent(params: Params) -> str:
    values = {
        "count": len(params["locks"]),
        "since": _instant(params["since"]),
        "last": params["last"],
        "names": some_names(params["locks"]),
    }
    text = gettext(
        "No host has ever started a scheduled job, though %(count)s are due: %(names)s."
    )
    if params["since"] is not None:
        text = gettext(
            "No host has started any scheduled job since %(since)s (last: %(last)s), "
            "though %(count)s are due: %(names)s."
        )
    after = gettext("Check whether the scheduler runs.")
    return f"{text % values} {after}"


def _overdue(params: Params) -> str:
    match params["why"]:
        case "never begun":
            why = gettext("No run has ever begun: check whether its scheduler runs.")
        case "not begun":
            why = gettext(
                "No run has begun since the tick of %(last)s: check whether its "
                "scheduler runs."
            )
        case "failed":
            why = gettext("Its job ran, but did not succeed: find out why.")
        case _:
            why = gettext(
                "The last tick that ran, %(last)s, has not succeeded either: find out "
                "why."
            )
    values = {
        "late": format_rough(params["late"]),
        "missed": _instant(params["since"]),
        # Another version may have written a schedule that can't be read here.
        "schedule": f" ({params['schedule']})" if params["schedule"] else "",
        "last": _instant(params["last_tick"]),
        "process": process_of(params["suspect"]),
    }
    text = gettext(
        "Late by %(late)s: the tick of %(missed)s%(schedule)s has not succeeded."
    )
    told = [text, why]
    if params["suspect"]:
        told.append(_may_still_run())
    return " ".join(told) % values


def _may_still_run() -> str:
    return gettext("Its last run may still go on in process %(process)s.")


def _bad_end(kind: Kind, params: Params) -> str:
    values = {
        "which": gettext("Its last run"),
        "again": "",
        "exception": params["exception"],
        "at": _instant(params["lost_at"]),
        "began": _at(params["started_at"]),
        "ended": _at(params["ended_at"]),
        "process": process_of(params["run"]),
    }
    if not params["is_last"]:
        values["which"] = gettext("An earlier run")
    elif params["failures"] > 1:
        text = gettext(", and %(count)s runs in a row have not succeeded")
        values["again"] = text % {"count": params["failures"]}
    match kind:
        case Kind.TIMED_OUT:
            text = gettext(
                "%(which)s was ended%(ended)s because its time limit was over%(again)s."
            )
        case Kind.LOST if params["lost_at"]:
            text = gettext(
                "%(which)s lost its lock at %(at)s, before it ended%(again)s."
            )
        case Kind.LOST:
            text = gettext("%(which)s lost its lock before it ended%(again)s.")
        case Kind.ABANDONED if not params["started_at"]:
            text = gettext(
                "%(which)s has not reported its end, and does not hold its lock any "
                "more%(again)s."
            )
        case Kind.ABANDONED:
            text = gettext(
                "%(which)s began%(began)s, has not reported its end, and does not "
                "hold its lock any more%(again)s."
            )
        case _ if params["exception"]:
            text = gettext("%(which)s failed%(ended)s with %(exception)s%(again)s.")
        case _:
            text = pgettext("shedlock", "%(which)s failed%(ended)s%(again)s.")
    parts = [text % values, _both_runs(params), _released(params)]
    if params["succeeded_at"] is not None:
        at = {"at": _instant(params["succeeded_at"])}
        parts.append(gettext("It last succeeded at %(at)s.") % at)
    parts.append(_remedy(kind, params) % values)
    return " ".join(filter(None, parts))


def _remedy(kind: Kind, params: Params) -> str:
    if params["may_still_run"]:
        return gettext(
            "It may still run: make sure that its process %(process)s is gone, before "
            "its job runs again."
        )
    match kind:
        case Kind.TIMED_OUT:
            return gettext("Find out why it took so long, or raise its time limit.")
        case Kind.LOST:
            return gettext(
                "It may have run twice at the same time. If its lease was too short, "
                "give it a longer lock_at_most_for, or keep_alive=True."
            )
        case _:
            return gettext("Find out why.")


def _both_runs(params: Params) -> str:
    """Name the run that lost its lock, and the one beside which it may have run."""
    if not params["other_run"]:
        return ""
    values = {
        "process": process_of(params["run"]),
        "began": _instant(params["started_at"]),
        "ended": _instant(params["ended_at"]),
        "other": process_of(params["other_run"]),
        "other_began": _instant(params["other_began"]),
        "other_ended": _instant(params["other_ended"]),
    }
    own = gettext("It ran in process %(process)s")
    if params["started_at"] and params["ended_at"]:
        own = gettext("It ran in process %(process)s from %(began)s to %(ended)s")
    elif params["started_at"]:
        own = gettext("It began in process %(process)s at %(began)s")
    other = gettext("process %(other)s acquired the lock at %(other_began)s")
    if params["other_ended"]:
        other = gettext(
            "process %(other)s ran the job from %(other_began)s to %(other_ended)s"
        )
    return f"{own % values}; {other % values}."


def _released(params: Params) -> str:
    """Say who released the run's lock, if an operator did."""
    if params["released_at"] is None:
        return ""
    text = gettext("%(who)s released its lock at %(at)s.")
    if params["release_reason"]:
        text = gettext("%(who)s released its lock at %(at)s, because: %(reason)s.")
    return text % {
        "who": params["released_by"] or gettext("An unnamed operator"),
        "at": _instant(params["released_at"]),
        "reason": repr(params["release_reason"]),
    }


def _expired(params: Params) -> str:
    text = gettext(
        "Its lease ended at %(at)s, but %(holder)s never released the lock: its worker "
        "may have died, or its job runs for longer than lock_at_most_for. The next "
        "start acquires the lock, a catch-up does not. Make sure that process "
        "%(process)s is gone, then release the lock."
    )
    if params["is_taken"]:
        text = gettext(
            "Its lease ended, but %(holder)s never released the lock, and another "
            "service has acquired it since. Make sure that process %(process)s is gone."
        )
    return text % {
        "at": _instant(params["lease_end"]),
        "holder": params["run"],
        "process": process_of(params["run"]),
    }


def _long(params: Params) -> str:
    text = gettext("Its job has run for %(time)s as %(holder)s.")
    if params["tick"] is not None:
        text = gettext(
            "Its job has run for %(time)s as %(holder)s, since the tick of %(tick)s "
            "(%(schedule)s), so later ticks are skipped."
        )
    elif params["is_unusual"]:
        text = gettext(
            "Its job has run for %(time)s as %(holder)s; it usually takes %(usual)s."
        )
    usual = params["usual"]
    text += " " + gettext("If it hangs, end its process, then release the lock.")
    return text % {
        "time": format_rough(params["held_for"]),
        "holder": params["run"],
        "usual": "" if usual is None else format_measured(usual),
        "tick": _instant(params["tick"]),
        "schedule": params["schedule"],
    }


def _request(params: Params) -> str:
    text = gettext("%(who)s asked for a run at %(at)s, and no host has started it.")
    if params["why"]:
        text = gettext(
            "%(who)s asked for a run at %(at)s, because: %(why)s. No host has started "
            "it."
        )
    after = gettext("Check whether a beat runs, or a catch-up is called.")
    if params["is_held"]:
        after = gettext("It waits until the lock is released.")
    elif params["is_expired"]:
        after = gettext("It was not carried out within an hour, so it has expired.")
    told = [text, after]
    if params["suspect"]:
        told.append(_may_still_run())
    values = {
        "who": params["who"] or gettext("An unnamed operator"),
        "at": _instant(params["asked_at"]),
        "why": params["why"],
        "process": process_of(params["suspect"]),
    }
    return " ".join(told) % values


def _passed_over(params: Params) -> str:
    text = gettext(
        "Passed over %(count)s of its ticks, the first at %(first)s (%(schedule)s): "
        "they never began, and its last run was for the tick of %(newest)s. Check "
        "whether its scheduler was down, jobs waited for room, or a run took too long."
    )
    return text % {
        "count": params["count"],
        "first": _instant(params["first"]),
        "schedule": params["schedule"],
        "newest": _instant(params["newest"]),
    }


def _paused(params: Params) -> str:
    text = gettext(
        "Paused for %(time)s, without an end, by %(who)s, because: %(reason)s. Its job "
        "does not run until somebody resumes it."
    )
    return text % {
        "time": format_rough(params["held_for"]),
        "who": params["who"],
        "reason": params["reason"],
    }


def _history(params: Params) -> str:
    if params["why"] == "run missing":
        text = gettext(
            "The history lacks its last run, because it could not be written at "
            "%(at)s: the log says why."
        )
        return text % {"at": _instant(params["at"])}
    if params["why"] == "outgrown":
        text = gettext(
            "With %(setting)s = None the history grows for ever, and has runs that are "
            "older than %(time)s: give the setting a duration, or prune them."
        )
        time = format_duration(params["age"])
        return text % {"setting": params["setting"], "time": time}
    text = gettext(
        "The history can't be read, so nobody knows what past runs raised, nor what "
        "operators have acknowledged: %(error)s"
    )
    return text % {"error": params["error"]}


def _to_seconds(duration: timedelta) -> timedelta:
    return timedelta(seconds=round(duration.total_seconds()))


def _clock(params: Params) -> str:
    text = gettext(
        "The store's clock is %(time)s behind that of host %(host)s: locks are right, "
        "but schedulers start jobs at other times."
    )
    if params["is_ahead"]:
        text = gettext(
            "The store's clock is %(time)s ahead of that of host %(host)s: locks are "
            "right, but schedulers start jobs at other times."
        )
    return text % {
        "time": format_duration(_to_seconds(params["difference"])),
        "host": params["host"],
    }
