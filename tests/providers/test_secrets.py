"""Nothing that people read tells a password, whatever is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from hypothesis import example, given
from hypothesis import strategies as st

from django_shedlock.checks import check_providers, check_stores
from django_shedlock.providers import get_provider
from django_shedlock.providers.servers import shown_url
from tests.providers.test_servers import entry_of
from tests.support import profiles
from tests.support.dynamodb_fixtures import LOGIN
from tests.support.locks import configure, try_from

SECRET = "s3cret"
ENDS = ("", "@", "'", '"', "/", "?", "#", " ", "%", "%40", ":", ",", "[", "]", "\\")
MORE = (*ENDS, "://", "@host", "/0?x=", "\n", "é", "／", "：", "[::1]@", ":1/", "&a=")
passwords = st.one_of(
    st.tuples(st.sampled_from(MORE), st.sampled_from(MORE)),
    st.tuples(st.text(max_size=5), st.text(max_size=5)),
).map(lambda ends: f"{ends[0]}{SECRET}{ends[1]}{SECRET}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host", "redis://host"),
        ("redis://:s3cret@host:6379/0", "redis://host:6379/0"),
        ("redis://me:s3cret'%40@host/0?password=s3cret", "redis://host/0"),
        ("redis+sentinel://:s3cret@a:1,b/jobs/0", "redis+sentinel://a:1,b/jobs/0"),
        ("unix:///run/redis.sock?password=s3cret", "unix:///run/redis.sock"),
        ("rediss://[::1]:6379", "rediss://[::1]:6379"),
        (
            "mongodb://me:s3cret@a,b:1/db?tlsCertificateKeyFilePassword=s3cret",
            "mongodb://a,b:1/db",
        ),
        ("mongodb+srv://me:s3cret@h/?authSource=x", "mongodb+srv://h/"),
        ("localhost:2379", "localhost:2379"),
        ("redis:s3cret@host", "host"),
    ],
)
def test_shown_url(url: str, shown: str) -> None:
    """Only its scheme, its hosts and its path are shown."""
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3@cret@host",
        "redis://:s3/cret@host/0",
        "redis://:s3?cret@host",
        "redis://:s3#cret@host",
        "redis://:s3 cret@host",
        "redis://:[s3cret]@host",
        "redis://:s3cret／@host",
        "redis://:s3cret",
        "redis://host/0#s3cret",
        "mongodb://me:s3cret/db",
        "mongodb://host/?password=s3@cret",
        "mongodb://host/?password=s3 cret",
        "me:s3cret",
    ],
)
def test_url_that_tells_not_where_its_password_ends(url: str) -> None:
    """A URL is refused, and not shown, if the end of its password is unclear."""
    with pytest.raises(ValueError, match="can't be read") as no:
        shown_url(url)
    assert "s3" not in str(no.value)
    assert "cret" not in str(no.value)


@given(passwords, passwords)
def test_no_password_is_in_a_shown_url(one: str, two: str) -> None:
    """Wherever it stands, and however it is written."""
    for url in urls("redis", one, two):
        try:
            told = shown_url(url)
        except ValueError as error:
            told = str(error)
        assert SECRET not in told


def urls(scheme: str, one: str, two: str) -> Iterator[str]:
    yield f"{scheme}://me:{one}@127.0.0.1:1/0?password={two}"
    yield f"{scheme}://{one}@127.0.0.1:1"
    yield f"{scheme}://127.0.0.1:1/?tlsCertificateKeyFilePassword={two}"
    yield f"{scheme}://127.0.0.1:1?authMechanismProperties=AWS_SESSION_TOKEN:{two}"
    yield f"{scheme}://127.0.0.1:1/0#{two}"


def told_by(entry: dict[str, Any]) -> Iterator[str]:
    """Return all that people are told of a provider whose server is away."""
    calls: list[Callable[[], object]] = [
        check_providers,
        check_stores,
        get_provider,
        lambda: get_provider().place(),
        lambda: get_provider().record_of("job"),
        lambda: try_from(get_provider(), configure()),
    ]
    with override_settings(SHEDLOCK_PROVIDERS={"default": entry, "twin": entry}):
        for call in calls:
            try:
                yield repr(call())
            except Exception as error:  # whatever a library raises
                yield f"{error!r} {error.__cause__!r} {error.__context__!r}"


few_examples = profiles.few(1 / 12)
"""For tests in which each example waits for servers that are not there."""
QUICK: dict[str, dict[str, Any]] = {
    "redis": {"socket_connect_timeout": 0.1},
    "mongodb": {"timeout": "10ms"},
}


@pytest.mark.filterwarnings("ignore:Unknown option")
@pytest.mark.parametrize("kind", ["redis", "mongodb"])
@few_examples
@given(one=passwords, two=passwords)
@example(one=f"a:{SECRET}@b", two=f"x:{SECRET}")
def test_no_password_of_a_url_is_told(kind: str, one: str, two: str) -> None:
    """No check, error, place, repr or library shows the password of a URL."""
    for url in urls(kind, one, two):
        options = {"url": url, **QUICK[kind]}
        for text in told_by(entry_of(kind, options)):
            assert SECRET not in text, url


@few_examples
@given(one=passwords, two=passwords)
def test_no_password_of_etcd_is_told(one: str, two: str) -> None:
    """No message shows etcd's password, given as an option or in a URL."""
    for url in ("http://127.0.0.1:1", *urls("http", one, two)):
        options = {"endpoints": url, "user": "me", "password": one, "timeout": "1s"}
        for text in told_by(entry_of("etcd", options)):
            assert SECRET not in text, url


@few_examples
@given(one=passwords, two=passwords)
@example(one=SECRET, two=SECRET)
def test_no_key_of_dynamodb_is_told(one: str, two: str) -> None:
    """Keys are options there, too; in a URL they are refused."""
    keys = {"aws_secret_access_key": one, "aws_session_token": two}
    for url in ("http://127.0.0.1:1", *urls("http", one, two)):
        options = {**LOGIN, **keys, "endpoint_url": url, "timeout": "1s"}
        for text in told_by(entry_of("dynamodb", options)):
            assert SECRET not in text, url


@few_examples
@given(one=passwords, two=passwords)
def test_no_password_of_zookeeper_is_told(one: str, two: str) -> None:
    """No message shows ZooKeeper's password, as an option or among the hosts."""
    for hosts in ("127.0.0.1:1", f"me:{one}@127.0.0.1:1", *urls("zk", one, two)):
        login = {"auth_data": [("digest", f"me:{one}")]}
        options = {"hosts": hosts, "timeout": "10ms", **login}
        for text in told_by(entry_of("zookeeper", options)):
            assert SECRET not in text, hosts


def test_no_other_option_is_told() -> None:
    """What no provider knows may be a password with a misspelt name."""
    entry = entry_of("mongodb", {"url": "mongodb://a", "pasword": SECRET})
    assert SECRET not in " ".join(told_by(entry))
    with override_settings(SHEDLOCK_PROVIDERS={"default": f"redis://:{SECRET}@host"}):
        with pytest.raises(ImproperlyConfigured) as no:
            get_provider()
    assert SECRET not in str(no.value)
