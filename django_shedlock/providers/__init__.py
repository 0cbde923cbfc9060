"""The providers of ``SHEDLOCK_PROVIDERS``, by alias: each keeps locks."""

from collections.abc import Mapping

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from django_shedlock import conf
from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.forking import renewed_in_child
from django_shedlock.mutexes import Mutex
from django_shedlock.providers.base import LockProvider

_providers: dict[str, LockProvider] = {}
_creating = renewed_in_child(Mutex())


def get_provider(alias: str = "default") -> LockProvider:
    """
    Return the provider of this alias, one instance for the whole process.

    Raises ``InvalidLockConfiguration`` if the alias is not in ``SHEDLOCK_PROVIDERS``,
    and ``ImproperlyConfigured`` if the provider can't be made.
    """
    if (known := _providers.get(alias)) is not None:
        return known
    # With two instances of a provider in memory, two threads would get one lock.
    with _creating:
        if alias in _providers:
            return _providers[alias]
        table = conf.PROVIDERS.value
        if alias not in table:
            raise InvalidLockConfiguration(
                f"There is no lock provider {alias!r}. SHEDLOCK_PROVIDERS has "
                f"{', '.join(map(repr, table)) or 'none at all'}."
            )
        parameters, backend = table[alias], None
        try:
            backend = parameters["BACKEND"]
            provider = import_string(backend)(alias, **parameters.get("OPTIONS", {}))
        except Exception as error:  # a backend may raise anything
            if isinstance(error, RuntimeError) and not _has_app():
                raise ImproperlyConfigured(
                    f"The lock provider {alias!r} needs tables, but the app that has "
                    'them is missing: put "django_shedlock" into INSTALLED_APPS, and '
                    "run `manage.py migrate`."
                ) from error
            # The options may hold passwords, and logs and checks show this text.
            raise ImproperlyConfigured(
                f"SHEDLOCK_PROVIDERS[{alias!r}], with the BACKEND {backend!r}, gives "
                f"no lock provider: {described(error)}."
            ) from error
        if not isinstance(provider, LockProvider):
            raise ImproperlyConfigured(
                f"SHEDLOCK_PROVIDERS[{alias!r}]: {backend} is not a LockProvider."
            )
        _providers[alias] = provider
        return provider


def _has_app() -> bool:
    # A store that is no database works without the app.
    return not apps.apps_ready or apps.is_installed("django_shedlock")


def provider_instances() -> dict[str, LockProvider]:
    """Return by alias the providers that were made so far."""
    return _providers.copy()


def use_instances(instances: Mapping[str, LockProvider]) -> None:
    """Use these providers, and make the others again when they are needed."""
    with _creating:
        _providers.clear()
        _providers.update(instances)


def provider_aliases() -> list[str]:
    """Return the aliases of ``SHEDLOCK_PROVIDERS``."""
    return list(conf.PROVIDERS.value)


def aliases_to_ask() -> list[str]:
    """Return the aliases of all providers; with wrong settings only ``"default"``."""
    try:
        return provider_aliases() or ["default"]
    except ImproperlyConfigured:  # get_provider() raises it again
        return ["default"]


@receiver(setting_changed)
def forget_providers(*, setting: str, **kwargs: object) -> None:
    """Forget the providers after ``override_settings``, so that they are made again."""
    if setting == conf.PROVIDERS.name:
        _providers.clear()
