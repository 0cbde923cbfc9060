"""
How many examples Hypothesis tries: ``--hypothesis-profile`` names the profile.

``quick`` is for the README's run, ``ci`` for a run of all tests, and ``nightly`` for
the night. An example that failed is kept in ``.hypothesis``, and tried first in the
next run.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.support.paths import ROOT

EXAMPLES = {"quick": 24, "ci": 100, "nightly": 3000}
"""The number of examples of each profile."""
OPTION = "--hypothesis-profile"

_chosen: dict[str, str] = {}


def register() -> None:
    """Register the profiles, and load the quick one."""
    for name, count in EXAMPLES.items():
        # Not from the active profile, which depends on the variable CI.
        settings.register_profile(
            name,
            settings.get_profile("default"),
            max_examples=count,
            deadline=None,  # a machine may stand still in the middle of an example
            suppress_health_check=[HealthCheck.too_slow],
            database=DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples"),
        )
    settings.load_profile("quick")


def choose(config: pytest.Config, *, has_all_tests: bool) -> None:
    """Load the profile of a run of all tests, unless the command line names one."""
    named = config.getoption(OPTION, None)
    _chosen["profile"] = named or ("ci" if has_all_tests else "quick")
    settings.load_profile(_chosen["profile"])


def few(share: float) -> settings:
    """Return the settings of a test whose examples are slow: it tries a share."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)))


def is_nightly() -> bool:
    """Return whether this is the nightly run, which may take hours."""
    return _chosen.get("profile") == "nightly"
