"""What operators can do to locks: the table of their actions."""

from django.utils.translation import gettext_lazy, pgettext_lazy

from django_shedlock import signals
from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.console.monitoring.findings import Kind
from django_shedlock.console.operators import performing, requests
from django_shedlock.console.operators.acting import Action, Option
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.status import LockState

RUNNING, PAUSED, EXPIRED = LockState.RUNNING, LockState.PAUSED, LockState.EXPIRED
KEPT, FREE = LockState.HELD_AT_LEAST, LockState.FREE


RELEASE = Action(
    kind=ActionKind.RELEASE,
    permission="django_shedlock.release_lockrecord",
    # Of an expired lock nobody knows whether its job still runs.
    states=frozenset({RUNNING, KEPT, EXPIRED}),
    cures=frozenset({Kind.EXPIRED, Kind.LONG}),
    question=gettext_lazy(
        "Another worker can acquire a released lock at once. A job that still runs "
        "under it is not stopped: make sure that it is dead, or it may run twice."
    ),
    refused=gettext_lazy("Lock %(name)s is not released: %(why)s."),
    unknown=gettext_lazy("Nobody knows whether lock %(name)s is released"),
    perform=performing.release,
    is_audited=True,
    options=[
        Option(
            "running",
            "--force",
            "release it even if its job is running, or its lease is over; the job is "
            "not stopped, and another worker may start it as well",
            default=False,
        )
    ],
    help="release a lock that lock_at_least_for keeps; with --force, any lock",
    advice={
        **dict.fromkeys(
            (RUNNING, EXPIRED),
            "With --force it is released all the same, and another worker may start "
            "the job while this one goes on.",
        ),
        PAUSED: "`{resume}` ends the pause.",
    },
    is_dangerous=True,
)
EXTEND = Action(
    kind=ActionKind.EXTEND,
    permission="shedlock_console.extend_lockrecord",
    states=frozenset({RUNNING, KEPT}),
    cures=frozenset({Kind.LONG}),
    question=gettext_lazy(
        "An extended lock stays held for longer, even if its worker is dead. A worker "
        "learns of its longer lease when it asks the next time."
    ),
    refused=gettext_lazy("Lock %(name)s is not extended: %(why)s."),
    unknown=gettext_lazy("Nobody knows whether lock %(name)s is extended"),
    done=performing.extended,
    perform=performing.extend,
    is_audited=True,
    options=[
        Option(
            "lock_at_most_for",
            "",
            'counts from now, as in "30s" or "1h30m"',
            label=gettext_lazy("Lease from now"),
            hint=gettext_lazy("For example 30m or 1h30m. It never becomes shorter."),
            initial="30m",
        )
    ],
    help="extend the lease of a held lock; never shorten it",
)
PAUSE = Action(
    kind=ActionKind.PAUSE,
    permission="shedlock_console.pause_lockrecord",
    states=frozenset(LockState) - {RUNNING},
    question=gettext_lazy(
        "A paused job is skipped on all hosts, and is not overdue, until the pause "
        "ends or somebody resumes the job. Each skip tells who paused it and why."
    ),
    refused=gettext_lazy("The job of lock %(name)s is not paused: %(why)s."),
    refused_in={
        PAUSED: gettext_lazy("The job of lock %(name)s is paused already: %(why)s.")
    },
    unknown=gettext_lazy("Nobody knows whether lock %(name)s is paused"),
    done=performing.paused,
    perform=performing.pause,
    is_shown=lambda before, after, **options: after.state is PAUSED,
    signal=signals.lock_paused,
    makes=lambda asked: Pause(asked.operator, asked.reason).identity(),
    options=[
        Option(
            "lasting",
            "--for",
            'the pause ends by itself after so long, as in "2h"; without it, by '
            "the subcommand resume only",
            default=FOREVER,
            label=pgettext_lazy("shedlock", "For"),
            hint=gettext_lazy(
                "For example 2h. If it is empty, the pause has no end of its own."
            ),
        ),
        Option(
            "wait",
            "--wait",
            "wait so long for a running job to end; without it, refuse",
            default=ZERO,
        ),
    ],
    help="keep a job from running, by an acquisition of your own, until resume",
    advice=dict.fromkeys(
        (RUNNING, EXPIRED),
        "With --wait 10m the pause begins when the job has ended. If its worker is "
        "dead, release the lock first.",
    ),
    needs_reason=True,
)
RESUME = Action(
    kind=ActionKind.RESUME,
    permission="shedlock_console.pause_lockrecord",
    states=frozenset({PAUSED}),
    cures=frozenset({Kind.PAUSED}),
    question=gettext_lazy("The next start of a resumed job runs it."),
    notes=performing.notes_of_resume,
    refused=gettext_lazy("Lock %(name)s is not resumed: %(why)s."),
    unknown=gettext_lazy("Nobody knows whether lock %(name)s is resumed"),
    done=performing.resumed,
    perform=lambda asked, before: (
        bool(before and before.pause) and performing.replaced(asked, before, ZERO)
    ),
    is_shown=lambda before, after: after.state is FREE,
    signal=signals.lock_resumed,
    help="end the pause of a job",
)
ACKNOWLEDGE = Action(
    kind=ActionKind.ACKNOWLEDGE,
    permission="shedlock_console.acknowledge_lockrecord",
    states=frozenset(LockState),
    cures=frozenset(
        {
            *(Kind.OVERDUE, Kind.FAILED, Kind.TIMED_OUT, Kind.LOST, Kind.ABANDONED),
            Kind.PASSED_OVER,
        }
    ),
    question=gettext_lazy(
        "The findings that the lock has now are silent. What happens from now on, such "
        "as another failure, is a finding again."
    ),
    refused=gettext_lazy("Lock %(name)s has no findings to acknowledge."),
    done=gettext_lazy(
        "The findings of lock %(name)s are acknowledged. What happens from now on is "
        "told."
    ),
    perform=lambda asked, before, lasting: bool(asked.facts),
    facts=performing.of_findings,
    options=[
        Option(
            "lasting",
            "--for",
            'the findings are silent for so long at the most, as in "2h"',
            default=FOREVER,
            label=pgettext_lazy("shedlock", "For"),
            hint=gettext_lazy(
                "For example 2h. If it is empty, they are silent until something new "
                "happens."
            ),
        )
    ],
    help="silence the findings that a lock has now, until something new happens",
    needs_reason=True,
)
RUN = Action(
    kind=ActionKind.RUN,
    permission="shedlock_console.run_lockrecord",
    states=frozenset(state for state in LockState if not state.is_in_use),
    cures=frozenset({Kind.OVERDUE, Kind.FAILED, Kind.TIMED_OUT}),
    question=gettext_lazy(
        "The job runs under its lock, even if its tick has been run, or if "
        "lock_at_least_for keeps the lock."
    ),
    refused=gettext_lazy("The job of lock %(name)s was not started: %(why)s."),
    unknown=gettext_lazy("Nobody knows whether a run of %(name)s is requested"),
    done=requests.requested,
    perform=requests.request,
    is_shown=requests.is_requested,
    success=ActionResult.REQUESTED,
    obstacles=requests.obstacles,
    notes=requests.notes,
)
WITHDRAW = Action(
    kind=ActionKind.WITHDRAW,
    permission="shedlock_console.run_lockrecord",
    states=frozenset(LockState),
    question=gettext_lazy("No catch-up and no beat will carry out the request."),
    refused=gettext_lazy("No request for lock %(name)s is withdrawn: %(why)s."),
    unknown=gettext_lazy("Nobody knows whether a request for %(name)s is withdrawn"),
    done=gettext_lazy("The request to run the job of lock %(name)s is withdrawn."),
    obstacles=requests.unasked,
    perform=requests.withdraw,
    is_shown=requests.is_withdrawn,
    help="withdraw the request to run a job, if nobody has carried it out",
)

ACTIONS = {
    each.kind: each
    for each in (RELEASE, EXTEND, RESUME, PAUSE, ACKNOWLEDGE, RUN, WITHDRAW)
}
"""All that operators can do, in the order of the admin's buttons."""
