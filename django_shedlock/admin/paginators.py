"""Pages of a table that may have millions of rows."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.utils.functional import cached_property


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no more rows than anybody pages through, so that counting stays quick."""

    most = 10_000

    @cached_property
    def count(self) -> int:
        """Return the number of rows, or ``most`` if there are more."""
        return min(self._counted, self.most)

    @property
    def is_capped(self) -> bool:
        """Whether there are more rows than ``count`` says."""
        return self._counted > self.most

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[: self.most + 1].count())
