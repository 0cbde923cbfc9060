"""What an operator fills in before something is done to a lock."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.utils.translation import gettext, gettext_lazy

from django_shedlock.durations import parse_duration

LONGEST_LEASE = timedelta(days=365)


class ReasonForm(forms.Form):
    """Why an operator intervenes."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2, "cols": 60}),
        help_text=gettext_lazy("It is written to the admin's log."),
    )


class LeaseForm(ReasonForm):
    """For how long, and why."""

    lock_at_most_for = forms.CharField(
        label=gettext_lazy("Lease from now"),
        max_length=30,
        initial="30m",
        help_text=gettext_lazy("For example 30m or 1h30m. It never becomes shorter."),
    )
    field_order = ("lock_at_most_for", "reason")

    def clean_lock_at_most_for(self) -> timedelta:
        """Return the lease; refuse what is no duration, or none that makes sense."""
        try:
            lease = parse_duration(self.cleaned_data["lock_at_most_for"])
        except (ValueError, OverflowError):
            lease = timedelta(0)
        if not timedelta(0) < lease <= LONGEST_LEASE:
            raise forms.ValidationError(
                gettext("Enter a duration of at most a year, such as 30m or 1h30m.")
            )
        return lease
