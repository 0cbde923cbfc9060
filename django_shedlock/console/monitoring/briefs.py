"""The one-line form of a finding, and the words for a headline that counts findings."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.text import Truncator
from django.utils.translation import gettext, npgettext, npgettext_lazy, pgettext

from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.sentences import Params, some_names
from django_shedlock.durations import format_measured, format_rough
from django_shedlock.locks.lock import process_of

QUOTED_MAX_LENGTH = 60
"""How much of an error or of a reason fits into a line."""

COUNTED_FINDINGS = {
    Kind.UNREACHABLE: npgettext_lazy(
        "shedlock",
        "%(count)s store does not answer",
        "%(count)s stores do not answer",
        "count",
    ),
    Kind.SILENT: npgettext_lazy(
        "shedlock",
        "%(count)s scheduler silent",
        "%(count)s schedulers silent",
        "count",
    ),
    Kind.OVERDUE: npgettext_lazy(
        "shedlock", "%(count)s job overdue", "%(count)s jobs overdue", "count"
    ),
    Kind.FAILED: npgettext_lazy(
        "shedlock", "%(count)s job failed", "%(count)s jobs failed", "count"
    ),
    Kind.TIMED_OUT: npgettext_lazy(
        "shedlock", "%(count)s job timed out", "%(count)s jobs timed out", "count"
    ),
    Kind.EXPIRED: npgettext_lazy(
        "shedlock", "%(count)s lock expired", "%(count)s locks expired", "count"
    ),
    Kind.LONG: npgettext_lazy(
        "shedlock",
        "%(count)s job runs too long",
        "%(count)s jobs run too long",
        "count",
    ),
    Kind.LOST: npgettext_lazy(
        "shedlock", "%(count)s lock was lost", "%(count)s locks were lost", "count"
    ),
    Kind.ABANDONED: npgettext_lazy(
        "shedlock",
        "%(count)s run never reported its end",
        "%(count)s runs never reported their end",
        "count",
    ),
    Kind.REQUEST: npgettext_lazy(
        "shedlock",
        "%(count)s request not carried out",
        "%(count)s requests not carried out",
        "count",
    ),
    Kind.PASSED_OVER: npgettext_lazy(
        "shedlock",
        "%(count)s job passed over ticks",
        "%(count)s jobs passed over ticks",
        "count",
    ),
    Kind.PAUSED: npgettext_lazy(
        "shedlock",
        "%(count)s pause has no end",
        "%(count)s pauses have no end",
        "count",
    ),
    Kind.UNREADABLE: npgettext_lazy(
        "shedlock",
        "%(count)s record can't be read",
        "%(count)s records can't be read",
        "count",
    ),
    Kind.HISTORY: npgettext_lazy(
        "shedlock",
        "%(count)s problem with the history",
        "%(count)s problems with the history",
        "count",
    ),
    Kind.CLOCK: npgettext_lazy(
        "shedlock", "%(count)s clock is wrong", "%(count)s clocks are wrong", "count"
    ),
}
"""What a headline says of so many findings; ``MORE`` has no count."""


@dataclass(frozen=True)
class Brief:
    """
    A finding in one line: since when, who, and what it means.

    ``since`` is aware, and ``None`` if no instant is known: the reader computes the age
    by the store's clock. ``who`` is a process as ``host:pid``, an operator or a host,
    and may be empty. ``meaning`` is a few words in the language that was active, on one
    line, without a full stop.
    """

    since: datetime | None
    who: str
    meaning: str


def brief_of(kind: Kind, params: Params) -> Brief:
    """Return a finding of this kind in one line, in the active language."""
    since = _since(kind, params)
    meaning = _on_one_line(_meaning(kind, params)).rstrip(" .")
    who = _on_one_line(_who(kind, params))
    return Brief(None if since is None else aware(since), who, meaning)


def counted(kind: Kind, count: int) -> str:
    """Return what a headline says of so many findings; empty for ``MORE``."""
    if kind is Kind.MORE:
        return ""
    return COUNTED_FINDINGS[kind] % {"count": count}


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _quoted(text: str) -> str:
    """Return the beginning of a text that somebody else wrote."""
    return Truncator(_on_one_line(text)).chars(QUOTED_MAX_LENGTH)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _since(kind: Kind, params: Params) -> datetime | None:
    found: datetime | None = None
    match kind:
        case Kind.SILENT | Kind.OVERDUE | Kind.PAUSED:
            found = params["since"]
        case Kind.FAILED | Kind.TIMED_OUT:
            found = params["ended_at"]
        case Kind.LOST:
            found = params["lost_at"] or params["ended_at"]
        case Kind.EXPIRED if not params["is_taken"]:  # else it is another one's lease
            found = params["lease_end"]
        case Kind.LONG | Kind.ABANDONED:
            found = params["started_at"]
        case Kind.REQUEST:
            found = params["asked_at"]
        case Kind.PASSED_OVER:
            found = params["first"]
        case Kind.HISTORY:
            found = params.get("at")
    return found


def _who(kind: Kind, params: Params) -> str:
    match kind:
        case (
            Kind.FAILED
            | Kind.TIMED_OUT
            | Kind.LOST
            | Kind.ABANDONED
            | Kind.EXPIRED
            | Kind.LONG
        ):
            return process_of(params["run"])
        case Kind.OVERDUE:
            return process_of(params["suspect"])
        case Kind.SILENT:
            return str(params["last"])
        case Kind.REQUEST | Kind.PAUSED:
            return str(params["who"])
        case Kind.CLOCK:
            return str(params["host"])
        case _:
            return ""


def _meaning(kind: Kind, params: Params) -> str:
    match kind:
        case Kind.UNREACHABLE:
            text = gettext("no job can run: %(error)s")
            return text % {"error": _quoted(params["error"])}
        case Kind.SILENT:
            return _silent(params)
        case Kind.OVERDUE:
            return _joined(_overdue(params), _last_run_may_go_on(params))
        case Kind.FAILED | Kind.TIMED_OUT | Kind.LOST | Kind.ABANDONED:
            return _bad_end(kind, params)
        case Kind.EXPIRED if params["is_taken"]:
            return gettext("never released its lock, and another service acquired it")
        case Kind.EXPIRED:
            return gettext("never released its lock: dead, or still running?")
        case Kind.LONG:
            return _long(params)
        case Kind.REQUEST:
            return _joined(_request(params), _last_run_may_go_on(params))
        case Kind.PASSED_OVER:
            # "100+" are a hundred at least.
            number = int(params["count"].rstrip("+"))
            text = npgettext(
                "shedlock",
                "%(count)s tick never began",
                "%(count)s ticks never began",
                number,
            )
            return text % {"count": params["count"]}
        case Kind.PAUSED:
            text = gettext("no end: %(reason)s")
            return text % {"reason": _quoted(params["reason"])}
        case Kind.UNREADABLE:
            return gettext("its record can't be read")
        case Kind.HISTORY:
            return _history(params)
        case Kind.CLOCK:
            return _clock(params)
        case Kind.MORE:
            text = gettext("more than %(count)s locks may need attention")
            return text % {"count": params["count"]}


def _silent(params: Params) -> str:
    count = len(params["locks"])
    text = npgettext(
        "shedlock",
        "no host has started %(count)s due job: %(names)s",
        "no host has started %(count)s due jobs: %(names)s",
        count,
    )
    if params["since"] is None:
        text = npgettext(
            "shedlock",
            "no host has ever started a job, %(count)s is due: %(names)s",
            "no host has ever started a job, %(count)s are due: %(names)s",
            count,
        )
    return text % {"count": count, "names": some_names(params["locks"])}


def _overdue(params: Params) -> str:
    match params["why"]:
        case "never begun":
            return gettext("no run has ever begun")
        case "not begun":
            return gettext("no run has begun")
        case "failed":
            return gettext("its run did not succeed")
        case _:
            return gettext("a later run did not succeed either")


def _last_run_may_go_on(params: Params) -> str:
    return gettext("the last run may still go on") if params["suspect"] else ""


def _bad_end(kind: Kind, params: Params) -> str:
    which = again = ""
    if not params["is_last"]:
        which = pgettext("shedlock", "an earlier run")
    elif params["failures"] > 1:
        text = npgettext(
            "shedlock",
            "%(count)s run in a row",
            "%(count)s runs in a row",
            params["failures"],
        )
        again = text % {"count": params["failures"]}
    match kind:
        case Kind.TIMED_OUT:
            return _joined(which, gettext("over its time limit"), again)
        case Kind.LOST:
            return _joined(which, _beside(params), _may_still_run(params))
        case Kind.ABANDONED:
            never = gettext("never reported its end")
            return _joined(which, never, _may_still_run(params))
        case _:
            exception = params["exception"].rstrip(" .").rpartition(".")[2]
            unknown = gettext("its exception is not known")
            return _joined(which, exception or unknown, again)


def _beside(params: Params) -> str:
    """Say that the job may have run twice, once nobody else says more."""
    if not params["other_run"]:
        return "" if params["may_still_run"] else gettext("may have run twice")
    text = pgettext("shedlock", "may have run at the same time as %(other)s")
    if params["other_ended"]:
        text = pgettext("shedlock", "ran at the same time as %(other)s")
    return text % {"other": process_of(params["other_run"])}


def _may_still_run(params: Params) -> str:
    return gettext("may still run") if params["may_still_run"] else ""


def _long(params: Params) -> str:
    usual = later = ""
    if params["usual"] is not None:
        text = pgettext("shedlock", "usually takes %(usual)s")
        usual = text % {"usual": format_measured(params["usual"])}
    if params["tick"] is not None:
        later = gettext("later ticks are skipped")
    return _joined(usual, later) or pgettext("shedlock", "still running")


def _request(params: Params) -> str:
    if params["is_held"]:
        return gettext("waits until the lock is released")
    if params["is_expired"]:
        return gettext("expired: no host started the run")
    return gettext("no host has started the run")


def _history(params: Params) -> str:
    match params["why"]:
        case "run missing":
            return gettext("the history lacks its last run")
        case "outgrown":
            return gettext("the history grows for ever")
        case _:
            return gettext("the history can't be read")


def _clock(params: Params) -> str:
    text = gettext("the store's clock is %(time)s behind")
    if params["is_ahead"]:
        text = gettext("the store's clock is %(time)s ahead")
    return text % {"time": format_rough(params["difference"])}
