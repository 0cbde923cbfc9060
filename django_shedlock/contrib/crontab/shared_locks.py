"""What is doubtful about a lock that several entries of ``CRONJOBS`` have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from django.core.checks import CheckMessage, Warning

from django_shedlock.contrib.crontab.plans import Plan
from django_shedlock.schedules import Schedule


def find_shared(plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    """Look at the entries of each lock together."""
    shared: dict[tuple[str, str], list[Plan]] = defaultdict(list)
    for plan in plans:
        if plan.request is not None:
            shared[plan.request.provider, plan.request.name].append(plan)
    for (_, name), of_name in shared.items():
        yield from _several_targets(name, of_name)
        yield from _several_schedules(name, of_name)


def _several_targets(name: str, plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    targets = {plan.target for plan in plans}
    decorated = {plan.target for plan in plans if plan.job is not None}
    if len(targets) > 1 and targets != decorated:
        yield Warning(
            f"The lock {name!r} belongs to several targets of CRONJOBS, so each "
            f"skips while another one runs: {', '.join(sorted(targets))}.",
            hint="Give each a name of its own, or silence this if you mean it.",
            id="shedlock.W011",
        )


def _several_schedules(name: str, plans: Sequence[Plan]) -> Iterator[CheckMessage]:
    schedules: list[Schedule] = []
    for plan in plans:
        schedule = plan.configuration and plan.configuration.occasion.schedule
        if schedule and not any(_is_same(schedule, other) for other in schedules):
            schedules.append(schedule)
    if len(schedules) > 1:
        yield Warning(
            f"The lock {name!r} has several schedules in CRONJOBS, but counts only the "
            "ticks of the one that ran last, so missed runs of the others are not "
            f"seen: {', '.join(repr(str(schedule)) for schedule in schedules)}.",
            hint="Write one expression, or give each time a name of its own: by a "
            "function for each, or by `lock` of locked_command.",
            id="shedlock.W017",
        )


def _is_same(schedule: Schedule, other: Schedule) -> bool:
    has_its_zone = schedule.time_zone == other.time_zone
    return has_its_zone and schedule.has_ticks_of(other)
