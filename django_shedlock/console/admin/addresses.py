"""Where the pages of an admin site about a provider's locks are."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse

from django_shedlock.admin import OUTCOME_LABELS
from django_shedlock.console.admin.days import Span
from django_shedlock.console.admin.filters import query_of, query_of_lock
from django_shedlock.console.admin.labels import local


@dataclass(frozen=True)
class Addresses:
    """The addresses of pages about this provider's locks in an admin site."""

    site: str
    alias: str

    def lock(self, name: str) -> str:
        """Return the address of the page of a lock."""
        return self._of("lockrecord_change", quote(name)) + query_of(self.alias)

    def run(self, key: int) -> str:
        """Return the address of the page of a run."""
        return self._of("lockrun_change", key) + query_of(self.alias)

    def runs(self, name: str, **chosen: str) -> str:
        """Return the address of the list of a lock's runs, with these filters."""
        query = f"&{urlencode(chosen)}" if chosen else ""
        page = self._of("lockrun_changelist")
        return f"{page}{query_of_lock(self.alias, name)}{query}"

    def runs_of(self, name: str, span: Span) -> str:
        """Return the address of the list of these runs of a lock, or of their day."""
        chosen = {}
        if span.outcome in OUTCOME_LABELS:  # the list offers no others
            chosen["outcome"] = span.outcome
        first, last = (local(each).date() for each in (span.began, span.ended))
        if first == last:
            chosen["day"] = str(first)
        return self.runs(name, **chosen)

    def _of(self, page: str, *arguments: object) -> str:
        view = f"admin:django_shedlock_{page}"
        return reverse(view, args=arguments, current_app=self.site)
