"""Options and names: bad ones are refused at once, in words that name the lock."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_shedlock import InvalidLockConfiguration, LockConfiguration, scheduler_lock
from django_shedlock.durations import format_duration
from django_shedlock.locks.configuration import (
    LockOptions,
    LockRequest,
    make_request,
)

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"lock_at_most_for": 0}, "lock_at_most_for .0s. must be positive"),
    ({"lock_at_most_for": "-PT5S"}, "lock_at_most_for .-5s. must be positive"),
    ({"lock_at_most_for": ""}, "lock_at_most_for: ''"),
    ({"lock_at_most_for": "10 minutes"}, "lock_at_most_for: '10 minutes'"),
    ({"lock_at_least_for": -1}, "lock_at_least_for .-1s. must not be negative"),
    (
        {"lock_at_most_for": "1m", "lock_at_least_for": "2m"},
        r"lock_at_least_for \(2m\) is longer than lock_at_most_for \(1m\)",
    ),
    ({"wait": -1}, "wait .-1. must not be negative"),
    ({"wait": "soon"}, "wait: 'soon'"),
    ({"wait": None}, "wait: None is not a duration"),
    ({"provider": None}, "provider .None. must be an alias"),
    ({"schedule": "every day"}, "schedule: 'every day' is no interval"),
    ({"schedule": 15}, "schedule: 15 is no schedule"),
    ({"schedule": "@reboot"}, "schedule: '@reboot' has no interval"),
    ({"schedule": "61 * * * *"}, "schedule: .* Bad minute"),
    ({"keep_alive": "yes"}, "keep_alive .'yes'. must be True or False"),
    ({"history": 1}, "history .1. must be True or False"),
    (
        {"lock_at_most": "1m"},
        "unknown option 'lock_at_most'; there are .*Did you mean lock_at_most_for?",
    ),
    ({"on_skp": "fail"}, "there are .*, on_skip, .* Did you mean on_skip?"),
    ({"every": "5m"}, "unknown option 'every'; there are .*[.]$"),
]
BAD_NAMES: list[tuple[Any, str]] = [
    ("", "is blank"),
    ("   ", "is blank"),
    (" job", "begins or ends with white space"),
    ("job ", "begins or ends with white space"),
    ("job\x00", "cannot be printed"),
    ("a\nb", "cannot be printed"),
    ("x" * 256, "has 256 characters; at most 255"),
    (5, "is a int, not a str"),
]


@pytest.mark.parametrize(("options", "text"), BAD_OPTIONS)
def test_bad_option_is_refused_at_decoration(
    options: dict[str, Any], text: str
) -> None:
    """No job is decorated with an option that can't work (W14, W15)."""
    with pytest.raises(InvalidLockConfiguration, match=text) as caught:

        @scheduler_lock("billing", **options)
        def job() -> None: ...

    assert "'billing'" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("name", "text"), BAD_NAMES)
def test_bad_name_is_refused_before_any_statement(name: Any, text: str) -> None:
    """No store ever sees a name that it would cut or confuse (W10, W15)."""
    with pytest.raises(InvalidLockConfiguration, match=text) as caught:
        make_request(name, {})
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(("name", "text"), BAD_NAMES)
def test_configuration_checks_itself(name: Any, text: str) -> None:
    """Nobody makes a configuration that nobody could hold."""
    with pytest.raises(InvalidLockConfiguration, match=text):
        LockConfiguration(name, timedelta(minutes=1))


def test_request_has_each_option() -> None:
    """Each option of a lock has its value and its default in the request."""
    others = {"name", "start", "is_for_process"}
    assert {each.name for each in fields(LockRequest)} - others == {
        *LockOptions.__annotations__
    }


def test_configuration_takes_any_duration() -> None:
    """What is given in any form is a timedelta inside."""
    configuration = LockConfiguration("job", "1h", lock_at_least_for=90)
    assert configuration.lock_at_most_for == timedelta(hours=1)
    assert configuration.lock_at_least_for == timedelta(seconds=90)
    assert configuration == LockConfiguration("job", 3600, "1m30s")


def test_defaults_come_from_the_settings() -> None:
    """What is not given is taken from the settings when the lock is taken."""
    request = make_request("job", {})
    with override_settings(
        SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR="5m",
        SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR="10s",
    ):
        configuration = request.configuration()
    assert configuration.lock_at_most_for == timedelta(minutes=5)
    assert configuration.lock_at_least_for == timedelta(seconds=10)


def test_zero_at_least_overrides_the_setting() -> None:
    """An explicit zero is not taken for a missing option."""
    with override_settings(SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR="10s"):
        configuration = make_request("job", {"lock_at_least_for": 0}).configuration()
    assert configuration.lock_at_least_for == timedelta(0)


def test_options_that_clash_with_the_settings_are_refused() -> None:
    """An option and a default that do not go together are an error at use."""
    request = make_request("job", {"lock_at_least_for": "2h"})
    with pytest.raises(
        InvalidLockConfiguration, match=r"\(2h\) is longer than .*\(1h\)"
    ):
        request.configuration()


def test_namespace_is_put_before_the_name() -> None:
    """Two projects that share a table do not share names."""
    with override_settings(SHEDLOCK_NAMESPACE="blue"):
        assert make_request("job", {}).configuration().name == "blue.job"


def test_name_that_grows_too_long_by_the_namespace_is_refused() -> None:
    """The full name has to fit into the column."""
    request = make_request("x" * 255, {})
    with override_settings(SHEDLOCK_NAMESPACE="blue"):
        with pytest.raises(InvalidLockConfiguration, match="260 characters"):
            request.configuration()


@override_settings(SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR="5m")
def test_default_at_least_does_not_swallow_retries() -> None:
    """Each tick runs once anyway, so only what the lock itself says is kept."""
    at_least = {
        "plain": ({}, "5m"),
        "scheduled": ({"schedule": "@hourly"}, "0s"),
        "both": ({"schedule": "@hourly", "lock_at_least_for": "1m"}, "1m"),
    }
    for name, (options, expected) in at_least.items():
        configuration = make_request(name, options).configuration()
        assert format_duration(configuration.lock_at_least_for) == expected, name
