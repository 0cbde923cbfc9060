"""Every ``SHEDLOCK_`` setting: its name, type and default."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_shedlock.durations import Duration

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting. Its value is read at use, so ``override_settings`` works."""

    name: str
    types: tuple[type, ...]
    default: T

    @property
    def value(self) -> T:
        """The project's value, or the default; raises ``ImproperlyConfigured``."""
        value: T = getattr(settings, self.name, self.default)
        if value is self.default:
            return value
        # True is an int to Python, but not a duration to anybody.
        is_accepted = isinstance(value, self.types) and (
            bool in self.types or not isinstance(value, bool)
        )
        if not is_accepted:
            expected = " or ".join(kind.__name__ for kind in self.types)
            raise ImproperlyConfigured(
                f"{self.name} = {value!r}: it must be {expected}, "
                f"for example {self.default!r}."
            )
        return value

    @property
    def function(self) -> Any:
        """The function, or the one at a dotted path; raises ``ImportError``."""
        value = self.value
        return import_string(value) if isinstance(value, str) else value


class TableSetting(Setting[str]):
    """The name of a table. Django quotes it, so a dot would not mean a schema."""

    max_bytes: ClassVar[int] = 63
    """PostgreSQL cuts longer names, and MySQL refuses them."""

    @property
    def value(self) -> str:
        """The project's value, or the default; raises ``ImproperlyConfigured``."""
        value = super().value
        if value == self.default:  # the pattern below is for what a project wrote
            return value
        if "." in value:
            raise ImproperlyConfigured(
                f"{self.name} = {value!r}: it must be the name of a table, without a "
                "schema. Let the provider's `using` name an entry of DATABASES for "
                "that schema: on PostgreSQL with search_path in its OPTIONS; on MySQL "
                "and MariaDB the schema is its NAME."
            )
        is_plain = re.fullmatch(r"[\w$-]([\w $-]*[\w$-])?", value)
        if not is_plain or len(value.encode()) > self.max_bytes:
            raise ImproperlyConfigured(
                f"{self.name} = {value!r}: it must be the name of a table, of letters, "
                f"digits, _, $ and -, at most {self.max_bytes} bytes long, for example "
                f"{self.default!r}."
            )
        return value


DURATION_TYPES = (timedelta, int, float, str)
FUNCTION_TYPES: tuple[Any, ...] = (str, Callable)

PROVIDERS = Setting[dict[str, dict[str, Any]]](
    "SHEDLOCK_PROVIDERS",
    (dict,),
    {
        "default": {
            "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
            "OPTIONS": {"using": "default"},
        }
    },
)
LOCK_AT_MOST_FOR = Setting[Duration](
    "SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR", DURATION_TYPES, "1h"
)
LOCK_AT_LEAST_FOR = Setting[Duration](
    "SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR", DURATION_TYPES, "0s"
)
NAMESPACE = Setting[str]("SHEDLOCK_NAMESPACE", (str,), "")
TABLE = TableSetting("SHEDLOCK_TABLE", (str,), "shedlock")
ENABLED = Setting[bool]("SHEDLOCK_ENABLED", (bool,), True)
HISTORY = Setting[bool]("SHEDLOCK_HISTORY", (bool,), True)
HISTORY_SCRUB = Setting[Callable[[str], str] | str](
    "SHEDLOCK_HISTORY_SCRUB",
    FUNCTION_TYPES,
    "django_shedlock.scrubbing.without_secrets",
)
HISTORY_RETENTION = Setting[Duration | None](
    "SHEDLOCK_HISTORY_RETENTION", (*DURATION_TYPES, NoneType), "30d"
)
GRACE = Setting[Duration]("SHEDLOCK_GRACE", DURATION_TYPES, "5m")
EXIT_TIMEOUT = Setting[Duration]("SHEDLOCK_EXIT_TIMEOUT", DURATION_TYPES, "10s")
SITE_URL = Setting[str]("SHEDLOCK_SITE_URL", (str,), "")
COMMANDS = Setting[dict[str, object]]("SHEDLOCK_COMMANDS", (dict,), {})
SCHEDULE = Setting[dict[str, object]]("SHEDLOCK_SCHEDULE", (dict,), {})
CRONTAB = Setting[dict[str, dict[str, Any]]]("SHEDLOCK_CRONTAB", (dict,), {})
CRONTAB_TIME_ZONE = Setting[str]("SHEDLOCK_CRONTAB_TIME_ZONE", (str,), "")
METRICS_LABEL = Setting[Callable[[str], str] | str](
    "SHEDLOCK_METRICS_LABEL",
    FUNCTION_TYPES,
    "django_shedlock.contrib.prometheus.own_name",
)
METRICS_MAX_LOCKS = Setting[int]("SHEDLOCK_METRICS_MAX_LOCKS", (int,), 1000)
PINGS = Setting[dict[str, str]]("SHEDLOCK_PINGS", (dict,), {})

SETTINGS: tuple[Setting[Any], ...] = tuple(
    value for value in list(vars().values()) if issubclass(type(value), Setting)
)
"""All of the above, in this order."""
