"""A lock's options, the request they are parsed into, and its configuration."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypedDict

from django.conf import settings

from django_shedlock import conf
from django_shedlock.durations import Duration, format_duration, parse_duration
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.schedules.cron import Schedule, WrittenSchedule
from django_shedlock.schedules.state import BY_SCHEDULER, Start, Trigger

ZERO = timedelta(0)


@dataclass(frozen=True, init=False)
class LockConfiguration:
    """
    One lock's parameters: its full name, and any durations.

    ``history`` says whether its runs are recorded, where that is possible.
    With ``schedule``, which has a time zone, each of its ticks runs once; the job is
    overdue ``grace`` after its tick. ``start`` says what starts this run.
    Raises ``InvalidLockConfiguration`` if such a lock can't work.
    """

    name: str
    lock_at_most_for: timedelta
    lock_at_least_for: timedelta
    history: bool
    schedule: Schedule | None
    grace: timedelta
    start: Start

    def __init__(
        self,
        name: str,
        lock_at_most_for: Duration,
        lock_at_least_for: Duration = ZERO,
        *,
        history: bool = True,
        schedule: Schedule | None = None,
        grace: timedelta = ZERO,
        start: Start = BY_SCHEDULER,
    ):
        check_name(name)
        at_most = parse_option(name, "lock_at_most_for", lock_at_most_for)
        at_least = parse_option(name, "lock_at_least_for", lock_at_least_for)
        check_durations(name, at_most, at_least)
        durations = {"lock_at_most_for": at_most, "lock_at_least_for": at_least}
        others = {"history": history, "schedule": schedule, "grace": grace}
        vars(self).update(name=name, start=start, **durations, **others)

    @property
    def lease(self) -> str:
        """``lock_at_most_for`` as people write it."""
        return format_duration(self.lock_at_most_for)


class LockOptions(TypedDict, total=False):
    """
    The keyword options of the decorator, ``hold()`` and ``execute()``.

    ``lock_at_most_for`` and ``lock_at_least_for`` come from the settings if missing.
    ``keep_alive`` extends the lease while the body runs; if missing, the provider
    decides. ``wait`` is how long to wait for a lock that somebody else holds.
    ``schedule`` runs each of its ticks once: a cron expression, an interval such as
    ``"every 20s"``, or a list of these, see ``Schedule``. Cron expressions count in the
    time zone of the settings. ``history`` says whether runs are recorded; if missing,
    the settings decide.
    """

    lock_at_most_for: Duration | None
    lock_at_least_for: Duration | None
    provider: str
    keep_alive: bool | None
    wait: Duration
    schedule: Schedule | WrittenSchedule | None
    history: bool | None


@dataclass(frozen=True)
class LockRequest:
    """
    A name and options, parsed and checked as far as no setting is needed.

    ``start`` differs from call to call, so it is no option. ``is_for_process`` says
    whether this process was started to do what the lock is for.
    """

    name: str
    lock_at_most_for: timedelta | None = None
    lock_at_least_for: timedelta | None = None
    provider: str = "default"
    keep_alive: bool | None = None
    wait: timedelta = ZERO
    schedule: Schedule | None = None
    history: bool | None = None
    start: Start = BY_SCHEDULER
    is_for_process: bool = False

    def configuration(self) -> LockConfiguration:
        """Return the configuration, with the settings' defaults; see its class."""
        at_most, at_least = self.lock_at_most_for, self.lock_at_least_for
        has_ticks = self.schedule is not None
        if at_least is None and has_ticks:
            # Each tick runs once anyway, and a lock that is kept would delay retries.
            at_least = ZERO
        return _configuration(
            self,
            conf.NAMESPACE.value,
            conf.HISTORY.value if self.history is None else self.history,
            conf.LOCK_AT_MOST_FOR.value if at_most is None else at_most,
            conf.LOCK_AT_LEAST_FOR.value if at_least is None else at_least,
            conf.GRACE.value if has_ticks else ZERO,
            settings.TIME_ZONE if has_ticks else None,
        )


@lru_cache(maxsize=1000, typed=True)
def _configuration(
    request: LockRequest,
    namespace: str,
    history: bool,
    at_most: Duration,
    at_least: Duration,
    grace: Duration,
    time_zone: str | None,
) -> LockConfiguration:
    # Cached: the same request and settings, also the namespace, make the same one.
    schedule = request.schedule
    at_most, at_least, grace = (
        parse_option(setting.name, "default", value)
        for setting, value in (
            (conf.LOCK_AT_MOST_FOR, at_most),
            (conf.LOCK_AT_LEAST_FOR, at_least),
            (conf.GRACE, grace),
        )
    )
    if schedule is not None and schedule.time_zone is None:
        if not time_zone:
            raise InvalidLockConfiguration(
                f"Lock {request.name!r}: its schedule has no time zone, and neither "
                "have the settings. Set TIME_ZONE, or give a schedule with one: "
                f'Schedule("{schedule.expression}", "UTC").'
            )
        schedule = replace(schedule, time_zone=time_zone)
    if schedule and request.start.trigger in {Trigger.OPERATOR, Trigger.CATCH_UP}:
        at_least = ZERO  # kept after a run out of turn, it would skip the next tick
    return LockConfiguration(
        full_name(request.name),
        at_most,
        at_least,
        history=history,
        schedule=schedule,
        grace=grace,
        start=request.start,
    )


def make_request(name: str, options: Mapping[str, object]) -> LockRequest:
    """Return the request; ``InvalidLockConfiguration`` if no settings make it work."""
    if isinstance(schedule := options.get("schedule"), list):  # it can't be a key
        options = {**options, "schedule": tuple(schedule)}
    try:
        return _request(name, **options)
    except TypeError:  # a value, of whatever type, that can't be a key
        return _request.__wrapped__(name, **options)


@lru_cache(maxsize=1000, typed=True)
def _request(name: str, /, **options: Any) -> LockRequest:
    check_name(name)
    check_options(name, options, LockOptions.__annotations__)
    parsed = {**options, "schedule": make_schedule(name, options.get("schedule"))}
    if "wait" in options:
        parsed["wait"] = parse_option(name, "wait", options["wait"])
    for option in ("lock_at_most_for", "lock_at_least_for"):
        if options.get(option) is not None:  # else the settings decide
            parsed[option] = parse_option(name, option, options[option])
    request = LockRequest(name, **parsed)
    check_durations(name, request.lock_at_most_for, request.lock_at_least_for)
    provider = options.get("provider", "")
    keep_alive, history = options.get("keep_alive"), options.get("history")
    if not isinstance(provider, str):
        problem = f"provider ({provider!r}) must be an alias of SHEDLOCK_PROVIDERS"
    elif request.wait < ZERO:
        problem = f"wait ({options['wait']!r}) must not be negative"
    elif not isinstance(keep_alive, bool | None):
        problem = f"keep_alive ({keep_alive!r}) must be True or False"
    elif not isinstance(history, bool | None):
        problem = f"history ({history!r}) must be True or False"
    else:
        return request
    raise InvalidLockConfiguration(f"Lock {name!r}: {problem}.")


def check_options(name: str, options: Iterable[object], known: Collection[str]) -> None:
    """Raise ``InvalidLockConfiguration`` unless all options are ``known`` ones."""
    for option in options:
        if option in known:
            continue
        nearest = get_close_matches(str(option), known, n=1)
        raise InvalidLockConfiguration(
            f"Lock {name!r}: unknown option {option!r}; there are {', '.join(known)}."
            + (f" Did you mean {nearest[0]}?" if nearest else "")
        )


def make_schedule(
    name: str,
    schedule: Schedule | WrittenSchedule | None,
    time_zone: str | None = None,
) -> Schedule | None:
    """Return the schedule, or raise ``InvalidLockConfiguration`` naming the lock."""
    if schedule is None or isinstance(schedule, Schedule):
        return schedule
    try:
        return Schedule(schedule, time_zone)
    except ValueError as error:
        raise InvalidLockConfiguration(f"Lock {name!r}: schedule: {error}.") from error


def check_name(name: object) -> None:
    """Raise ``InvalidLockConfiguration`` unless every store can keep ``name``."""
    if not isinstance(name, str):
        problem = f"is a {type(name).__name__}, not a str"
    elif not name.strip():
        problem = "is blank"
    elif name != name.strip():
        # MySQL and MariaDB ignore spaces at the end when they compare keys.
        problem = "begins or ends with white space"
    elif not name.isprintable():
        problem = "contains characters that cannot be printed"
    elif len(name) > 255:
        problem = f"has {len(name)} characters; at most 255 are allowed"
    else:
        return
    raise InvalidLockConfiguration(f"Lock name {name!r} {problem}.")


def check_durations(
    name: str, at_most: timedelta | None, at_least: timedelta | None = None
) -> None:
    """Raise ``InvalidLockConfiguration`` unless those that are given can work."""
    if at_most is not None and at_most <= ZERO:
        problem = (
            f"lock_at_most_for ({format_duration(at_most)}) must be positive: it ends "
            "the lease of a holder that died"
        )
    elif at_least is not None and at_least < ZERO:
        problem = (
            f"lock_at_least_for ({format_duration(at_least)}) must not be negative"
        )
    elif at_most is not None and at_least is not None and at_least > at_most:
        problem = (
            f"lock_at_least_for ({format_duration(at_least)}) is longer than "
            f"lock_at_most_for ({format_duration(at_most)}). Shorten the first, or "
            "lengthen the second"
        )
    else:
        return
    raise InvalidLockConfiguration(f"Lock {name!r}: {problem}.")


def parse_option(name: str, option: str, value: Duration) -> timedelta:
    """Return the duration, or raise ``InvalidLockConfiguration`` naming the lock."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidLockConfiguration(f"Lock {name!r}: {option}: {error}.") from error


def full_name(name: str) -> str:
    """Return ``name`` as it stands in the store, with the namespace."""
    namespace = conf.NAMESPACE.value
    return f"{namespace}.{name}" if namespace else name


def default_duration(setting: conf.Setting[Duration]) -> timedelta:
    """Return the setting's duration, or raise ``InvalidLockConfiguration``."""
    return parse_option(setting.name, "default", setting.value)
