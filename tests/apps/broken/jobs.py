"""A module with scheduler_lock that cannot be imported."""

import a_package_that_is_not_installed  # type: ignore[import-not-found]  # noqa: F401
