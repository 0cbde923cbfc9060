"""What ``manage.py check`` says of DynamoDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config

from django_shedlock.checks import check_providers, check_stores
from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers import get_provider
from django_shedlock.providers.dynamodb import REQUEST_TRIES, DynamoDBLockProvider
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
        {"config": Config(region_name="eu-central-1", read_timeout=9)},
        {**LOGIN, "endpoint_url": "http://[::1]:8000", "use_ssl": False},
        {"region_name": "eu-central-1", "botocore_session": botocore.session.Session()},
    ],
)
def test_right_options(
    settings: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """
    Nothing is said of them; nobody is asked, this host for keys neither.

    What boto3 knows of DynamoDB is not loaded: that takes longer than all the rest.
    """

    def ask(*args: Any) -> None:
        raise AssertionError("somebody is asked")

    monkeypatch.setattr("botocore.loaders.Loader.load_data_with_path", ask)
    monkeypatch.setattr("botocore.credentials.CredentialResolver.load_credentials", ask)
    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", ask)
    use(settings, **options)
    assert check_providers() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"config": {"read_timeout": 9}}, "'config' is of dict, not botocore.config"),
        ({"region_name": None, "config": Config(region_name="a b")}, "region"),
        ({"region_name": "", "config": Config(region_name="eu-west-1")}, "region"),
        ({"profile_name": "nobody"}, "nobody"),
        ({"aws_secret_access_key": None}, "aws_secret_access_key"),
        ({"aws_access_key_id": ""}, "aws_access_key_id"),
        ({"aws_access_key_id": "", "aws_secret_access_key": ""}, "aws_access_key_id"),
        ({"service_name": "s3"}, "'service_name'"),
        ({"profile": "shop"}, "'profile'"),
        ({"endpoint_url": "http://"}, "Invalid endpoint"),
    ],
)
def test_wrong_options(settings: Any, options: dict[str, Any], said: str) -> None:
    """The check says what is wrong with those of the client and of its session."""
    use(settings, **{**LOGIN, **options})
    [message] = check_providers()
    assert message.id == "shedlock.E002"
    assert said in message.msg
    assert message.hint == "Correct its OPTIONS."


def test_config_beside_ours(settings: Any) -> None:
    """What it says counts, and what it leaves out is ours."""
    use(settings, **LOGIN, timeout="12s", config=Config(read_timeout=9))
    provider: Any = get_provider()
    config = provider.clients.get().meta.config
    assert (config.read_timeout, config.connect_timeout) == (9, 2)
    assert config.retries == {"mode": "standard", "total_max_attempts": REQUEST_TRIES}


def test_session_with_a_profile(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The region and the keys are those of the profile."""
    profile = ["[profile shop]", "region = eu-west-3"]
    profile += ["aws_access_key_id = OFSHOP", "aws_secret_access_key = x"]
    (tmp_path / "config").write_text("\n".join(profile), encoding="utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    session = botocore.session.Session(profile="shop")
    for options in ({"profile_name": "shop"}, {"botocore_session": session}):
        use(settings, **options)
        assert check_providers() == []
        assert signature_of_a_request(get_provider()).split("/")[:3:2] == [
            "AWS4-HMAC-SHA256 Credential=OFSHOP",
            "eu-west-3",
        ]


def signature_of_a_request(provider: Any) -> str:
    """Return how a request would be signed; none is sent."""
    signed: list[str] = []

    def note(request: AWSPreparedRequest, **_: Any) -> None:
        signed.append(request.headers["Authorization"].decode())
        raise InterruptedError

    provider.clients.get().meta.events.register("before-send.dynamodb", note)
    with pytest.raises(LockProviderError):
        provider.clock()
    return signed[0]


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
    """The documented table has the default name and is billed per request."""
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
        ({}, {"botocore_session": botocore.session.Session()}, False),
        ({}, {"region_name": None, "config": Config(region_name="eu-west-1")}, False),
    ],
)
def test_two_providers_in_one_place(
    settings: Any, first: dict[str, Any], second: dict[str, Any], *, is_one: bool
) -> None:
    """E005 reports two providers that share a table, a region and an account."""
    settings.SHEDLOCK_PROVIDERS = {
        alias: {"BACKEND": BACKEND, "OPTIONS": {**LOGIN, **options}}
        for alias, options in {"a": first, "default": second}.items()
    }
    messages = check_providers()
    assert [message.id for message in messages] == ["shedlock.E005"] * is_one
