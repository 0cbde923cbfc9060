"""What ``manage.py check`` says of DynamoDB."""

from __future__ import annotations

from typing import Any

import pytest

from django_shedlock.checks import check_providers, check_stores
from django_shedlock.providers import get_provider
from django_shedlock.providers.dynamodb import DynamoDBLockProvider
from tests.support.dynamodb_fixtures import LOGIN, documented_table

BACKEND = "django_shedlock.providers.dynamodb.DynamoDBLockProvider"
ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/locks"


def use(settings: Any, **options: Any) -> None:
    settings.SHEDLOCK_PROVIDERS = {"default": {"BACKEND": BACKEND, "OPTIONS": options}}


@pytest.mark.parametrize(
    "options",
    [
        LOGIN,
        {"region_name": "eu-central-1", "table": ARN},
        {**LOGIN, "verify": False, "aws_session_token": "of/a+role=="},
    ],
    ids=repr,
)
def test_right_options(
    settings: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Nothing is said of them; nobody is asked, this host for keys neither."""

    def ask(*args: Any) -> None:
        raise AssertionError("somebody is asked")

    monkeypatch.setattr("botocore.credentials.CredentialResolver.load_credentials", ask)
    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", ask)
    use(settings, **options)
    assert check_providers() == []


def test_server_that_answers(settings: Any, dynamodb: dict[str, Any]) -> None:
    """Nothing is said of it."""
    use(settings, **dynamodb)
    assert check_stores() == []
    provider: Any = get_provider()
    provider.clients.close()


def test_missing_table(settings: Any, dynamodb: dict[str, Any]) -> None:
    """The warning says what to create."""
    use(settings, **{**dynamodb, "table": "no-such-table"})
    [message] = check_stores()
    assert message.id == "shedlock.W005"
    assert "Create table 'no-such-table'." in message.msg
    provider: Any = get_provider()
    provider.clients.close()


def test_documented_table() -> None:
    """Its name is the default, and it is paid for what is asked of it."""
    table = documented_table()
    assert table["TableName"] == DynamoDBLockProvider("default", **LOGIN).table
    assert table["BillingMode"] == "PAY_PER_REQUEST"


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ({}, {}, True),
        ({}, {"table": "shedlock", "timeout": "1s"}, True),
        ({}, {"table": "others"}, False),
        ({}, {"region_name": "eu-west-1"}, False),
        ({}, {"endpoint_url": "http://127.0.0.1:1"}, False),
        ({}, {"aws_access_key_id": "of-another-account"}, False),
    ],
)
def test_two_providers_in_one_place(
    settings: Any, first: dict[str, Any], second: dict[str, Any], *, is_one: bool
) -> None:
    """One place is one table, of one region and one account."""
    settings.SHEDLOCK_PROVIDERS = {
        alias: {"BACKEND": BACKEND, "OPTIONS": {**LOGIN, **options}}
        for alias, options in {"a": first, "default": second}.items()
    }
    messages = check_providers()
    assert [message.id for message in messages] == ["shedlock.E005"] * is_one
