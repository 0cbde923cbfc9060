"""What an operator can do to the locks of others, once it is confirmed."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext, gettext_lazy

from django_shedlock.admin.confirmations import Confirmation
from django_shedlock.admin.forms import LeaseForm
from django_shedlock.durations import format_duration
from django_shedlock.interventions import Intervention


class ReleaseConfirmation(Confirmation):
    """Frees locks, also those of jobs that still run."""

    action = "release_selected"
    title = gettext_lazy("Release locks?")
    button = gettext_lazy("Release")
    question = gettext_lazy(
        "A released lock can be taken at once by another worker. A job that runs under "
        "it is not stopped: make sure that it is dead, or it will run twice."
    )
    refusal = gettext_lazy(
        "Lock “%(name)s” is not released: %(holder)s does not hold it any more."
    )

    def act(self, intervention: Intervention, data: dict[str, Any]) -> bool:
        """See Confirmation.act()."""
        return intervention.release(running=True)

    def done(self, intervention: Intervention, data: dict[str, Any]) -> str:
        """See Confirmation.done()."""
        return gettext("Lock “%(name)s” is released; %(holder)s held it.") % {
            "name": intervention.name,
            "holder": intervention.locked_by,
        }


class ExtendConfirmation(Confirmation):
    """Lengthens the leases of locks that somebody holds."""

    action = "extend_selected"
    form_class = LeaseForm
    title = gettext_lazy("Extend locks?")
    button = gettext_lazy("Extend")
    question = gettext_lazy(
        "An extended lock stays held for longer also if its worker is dead. The worker "
        "itself learns of its longer lease when it asks next."
    )
    refusal = gettext_lazy(
        "Lock “%(name)s” is not extended: %(holder)s does not hold it any more."
    )

    def act(self, intervention: Intervention, data: dict[str, Any]) -> bool:
        """See Confirmation.act()."""
        return intervention.extend(data["lock_at_most_for"])

    def done(self, intervention: Intervention, data: dict[str, Any]) -> str:
        """See Confirmation.done()."""
        return gettext(
            "Lock “%(name)s” is extended to %(lease)s from now; %(holder)s holds it."
        ) % {
            "name": intervention.name,
            "lease": format_duration(data["lock_at_most_for"]),
            "holder": intervention.locked_by,
        }
