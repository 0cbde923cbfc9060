"""What the admin tells of the ticks of a lock's schedule."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from django_shedlock import conf
from django_shedlock.admin.labels import (
    NOTHING,
    instant,
    rough_length,
    with_instant,
)
from django_shedlock.clocks import aware
from django_shedlock.options import default_duration


class TickColumns:
    """Columns of an admin of records, and the fields of a page with a schedule."""

    tick_columns = (
        "shown_schedule",
        "next_expected",
        "newest_run",
        "newest_success",
        "overdue_since",
    )
    tick_fields = (
        ("shown_schedule", "next_expected"),
        ("newest_run", "newest_success"),
        "overdue_since",
    )

    @admin.display(description=gettext_lazy("next expected"))
    def next_expected(self, record: Any) -> str | SafeString:
        """Return in how long and when the next tick is."""
        status = record.status
        if status.next_tick is None:
            return NOTHING
        until = status.next_tick - aware(status.clock)
        ahead = gettext("in %(time)s") % {"time": rough_length(until)}
        return with_instant(ahead, status.next_tick, until)

    @admin.display(description=gettext_lazy("schedule"))
    def shown_schedule(self, record: Any) -> SafeString:
        """Return the cron expression and its time zone, as they are written."""
        return format_html('<code dir="ltr">{}</code>', record.schedule)

    @admin.display(description=gettext_lazy("newest tick that was run"))
    def newest_run(self, record: Any) -> str | SafeString:
        """Return the newest tick for which a run began."""
        return instant(record.tick)

    @admin.display(description=gettext_lazy("newest tick that succeeded"))
    def newest_success(self, record: Any) -> str | SafeString:
        """Return the newest tick whose run succeeded."""
        return instant(record.progress.newest_success)

    @admin.display(description=gettext_lazy("overdue since"))
    def overdue_since(self, record: Any) -> str | SafeString:
        """Return the first tick that should have succeeded, and how long ago it was."""
        status, grace = record.status, default_duration(conf.GRACE)
        since = status.overdue_since(grace)
        if since is None:
            return NOTHING
        age = rough_length(status.overdue_for(grace))
        ago = gettext("%(age)s ago") % {"age": age}
        return format_html("{} ({})", instant(since), ago)
