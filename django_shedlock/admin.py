"""The door to ``console.admin``, which a site loads when its pages are asked for."""

from typing import TYPE_CHECKING, Any

from django.contrib.admin import ModelAdmin, site
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from django_shedlock.models import LockAction, LockRecord, LockRun

if TYPE_CHECKING:
    from django_shedlock.console.admin import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if not name.endswith("Admin"):  # Python asks for names of its own
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from django_shedlock.console import admin

        return getattr(admin, name)


class LazyAdmin(ModelAdmin):  # type: ignore[type-arg]
    """Makes the model's admin at its first use."""

    def __new__(cls, model: Any, admin_site: Any) -> Any:
        admin_class = f"{__name__}.{model.__name__}Admin"
        return SimpleLazyObject(lambda: import_string(admin_class)(model, admin_site))


site.register([LockAction, LockRecord, LockRun], LazyAdmin)
