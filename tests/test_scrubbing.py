"""Secrets in texts: what is hidden, and what stays readable."""

from __future__ import annotations

import re

import pytest
from django.test import override_settings
from django.views.debug import (
    SafeExceptionReporterFilter,
    get_default_exception_reporter_filter,
)

from django_shedlock.scrubbing import without_secrets

HIDDEN = "*" * 20


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgresql://app:s3cr3t@db/shop", f"postgresql://app:{HIDDEN}@db/shop"),
        ("redis://:s3/cr:3t@db:6379/0", f"redis://:{HIDDEN}@db:6379/0"),
        ("amqp://app:s3@cr3t@db, twice", f"amqp://app:{HIDDEN}@db, twice"),
        ("host=db password=s3cr;3t user=app", f"host=db password={HIDDEN} user=app"),
        (r"password='s3 cr\'3t' host=db", f"password={HIDDEN} host=db"),
        ('password = "s3 cr3t" host', f"password = {HIDDEN} host"),
        ("password='s3cr3t", f"password={HIDDEN}"),
        ("sslpassword=s3cr3t", f"sslpassword={HIDDEN}"),
        ("{'passwd': 's3cr3t', 'a': 1}", f"{{'passwd': {HIDDEN}, 'a': 1}}"),
        ("?api_key=s3cr3t", f"?api_key={HIDDEN}"),
        ("?user=app&password=s3cr3t", f"?user=app&password={HIDDEN}"),
        ("env={'A': 'password=s3cr3t'}", f"env={{'A': 'password={HIDDEN}"),
        ('{"api_key": "s3cr3t", "a": 1}', f'{{"api_key": {HIDDEN}, "a": 1}}'),
        (r"\"api_key\": \"s3 cr3t\", 1", rf"\"api_key\": {HIDDEN}, 1"),
        ("token=s3cr3t", f"token={HIDDEN}"),
        ("token: s3cr3t", f"token: {HIDDEN}"),
        ("X-Auth-Token: s3cr3t", f"X-Auth-Token: {HIDDEN}"),
        ("accessToken: 's3 cr3t' a", f"accessToken: {HIDDEN} a"),
        ("password:s3cr3t", f"password:{HIDDEN}"),
        ("('Api-Key', 's3cr3t')", f"('Api-Key', {HIDDEN})"),
        ("dump --password s3cr3t shop", f"dump --password {HIDDEN} shop"),
        ("['dump', '--token', 's3cr3t']", f"['dump', '--token', {HIDDEN}]"),
        ("--client-secret=s3cr3t", f"--client-secret={HIDDEN}"),
    ],
)
def test_value_is_hidden(text: str, kept: str) -> None:
    """A URL's, a DSN's, a dictionary's, an option's; the rest stays readable."""
    assert without_secrets(text) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Authorization: Bearer s3cr3t", f"Authorization: Bearer {HIDDEN}"),
        ("authorization: basic dTpw", f"authorization: basic {HIDDEN}"),
        ("Authorization: GenieKey 3f-25", f"Authorization: {HIDDEN}"),
        ("Authorization: Bot s3.cr3t\nDone", f"Authorization: {HIDDEN}\nDone"),
        (
            'Authorization: Digest username="ada", response="6629"\nDone',
            f"Authorization: {HIDDEN}\nDone",
        ),
        (
            "{'Authorization': 'JWT s3cr3t', 'a': 1}",
            f"{{'Authorization': {HIDDEN}, 'a': 1}}",
        ),
        ("DRIVER=x;UID=sa;PWD=hunter2", f"DRIVER=x;UID=sa;PWD={HIDDEN}"),
        ("--notify gotify://host/t0ken", f"--notify gotify://{HIDDEN}"),
        ("Authorization: s3cr3t", f"Authorization: {HIDDEN}"),
        ("Proxy-Authorization: Basic dTpw", f"Proxy-Authorization: Basic {HIDDEN}"),
        (
            'curl -H "Authorization: Bearer s3cr3t" -v',
            f'curl -H "Authorization: Bearer {HIDDEN}" -v',
        ),
        ("got 401 for Bearer eyJhbGci.eyJz.dQw4", f"got 401 for Bearer {HIDDEN}"),
        ("Cookie: a=1; sessionid=s3cr3t\nX: 1", f"Cookie: {HIDDEN}\nX: 1"),
    ],
)
def test_credentials_of_a_request_are_hidden(text: str, kept: str) -> None:
    """A request's credentials are hidden, in headers and after a scheme alone."""
    assert without_secrets(text) == kept


@pytest.mark.parametrize(
    "form",
    [
        "{'Authorization': 'Bearer s3cr3t'}",
        "{'authorization': b'Basic s3cr3t'}",
        "[('Authorization', 'Token s3cr3t')]",
        "Authorization=Bearer s3cr3t",
        '{"Cookie": "a=1; sessionid=s3cr3t"}',
    ],
)
def test_credentials_in_code_are_hidden(form: str) -> None:
    """Credentials in Python and JSON notation are hidden."""
    assert "s3cr3t" not in without_secrets(form)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "https://hooks.slack.com/services/T0ABCDEF/B0ABCDEF/s3cr3t failed",
            f"https://hooks.slack.com/services/{HIDDEN} failed",
        ),
        (
            "https://hooks.slack.com/workflows/T0ABCDEF/A0ABCDEF/1/s3cr3t",
            f"https://hooks.slack.com/workflows/{HIDDEN}",
        ),
        (
            "Max retries exceeded with url: /services/T0ABCDEF/B0ABCDEF/s3cr3t (a)",
            f"Max retries exceeded with url: /services/{HIDDEN} (a)",
        ),
        (
            "'https://discord.com/api/webhooks/1234567/s3-cr3t_a'",
            f"'https://discord.com/api/webhooks/{HIDDEN}'",
        ),
        (
            "url: /api/v10/webhooks/1234567/s3-cr3t?wait=true",
            f"url: /api/v10/webhooks/{HIDDEN}",
        ),
        (
            "https://outlook.office.com/webhook/1-2@3/IncomingWebhook/s3/cr3t",
            f"https://outlook.office.com/webhook/{HIDDEN}",
        ),
        (
            "https://shop.webhook.office.com/webhookb2/1-2@3/IncomingWebhook/s3cr3t",
            f"https://shop.webhook.office.com/webhookb2/{HIDDEN}",
        ),
        (
            "https://prod-1.westus.logic.azure.com:443/workflows/1/paths?a=1&sig=s3",
            f"https://prod-1.westus.logic.azure.com:443/{HIDDEN}",
        ),
        (
            "https://api.telegram.org/bot123456:s3-cr3t/sendMessage?chat_id=1",
            f"https://api.telegram.org/bot{HIDDEN}/sendMessage?chat_id=1",
        ),
        (
            "https://api.telegram.org/file/bot123456:s3-cr3t/photos/1.jpg",
            f"https://api.telegram.org/file/bot{HIDDEN}",
        ),
        ("https://chat.example/hooks/s3cr3t", f"https://chat.example/hooks/{HIDDEN}"),
        ("see slack://T1JJ3T3L2/A1/s3cr3t", f"see slack://{HIDDEN}"),
        ("tgram://123456:s3cr3t/99 failed", f"tgram://{HIDDEN} failed"),
    ],
)
def test_address_of_a_chat_is_hidden(text: str, kept: str) -> None:
    """The secret in a chat's webhook URL is hidden, and its host stays readable."""
    assert without_secrets(text) == kept


def test_secrets_stay_hidden() -> None:
    """A text that was scrubbed may be scrubbed again, and stays as it is."""
    text = "token: a Authorization: Bearer b ?key=c redis://:d@e /bot1:f '--token', 'g'"
    once = without_secrets(text)
    assert once.count(HIDDEN) == 6
    assert without_secrets(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "File /app/hooks/sync.py, line 3, in run",
        "unexpected token: }",
        "authorization: denied for user bob",
        "KeyError: 'missing'",
        "sorted(found, key=lambda each: each.name)",
        "see https://example.com:8080/path, or mail@example.com",
        "DETAIL:  Key (id)=(5) already exists.",
        "the token expired, and the authorization failed",
        "basic authentication failed: bad password",
        "without authorization, nothing works, nor without a token, or a cookie, a=b",
        "Bearer token expired",
        "TokenError: it is too old",
        "TypeError: monkey: banana, passed: 5, foreign_key: shop",
        "the option --password is missing",
        "argument --token: expected one argument",
        "Could not reach https://example.com/services/tax or /webhooks/list",
        "the robot/bot3 has stopped; see /hooks",
        "def connect(password: str, token: str | None = None) -> None:",
        "assert token == expected",
        "if not token:\n    return",
        'File "/srv/shop/jobs.py", line 7, in job',
        "x" * 1_000_000,
        "://a:" * 100_000,
    ],
)
def test_what_is_no_secret_is_kept(text: str) -> None:
    """Ordinary words and code are kept; a long text takes no long time."""
    assert without_secrets(text) == text


def test_names_are_those_of_the_projects_error_reports() -> None:
    """What Django's own reports hide, the history hides."""
    path = f"{__name__}.Filter"
    with override_settings(DEFAULT_EXCEPTION_REPORTER_FILTER=path):
        get_default_exception_reporter_filter.cache_clear()
        try:
            assert without_secrets("pin=1234 password=x") == "pin=(gone) password=x"
        finally:
            get_default_exception_reporter_filter.cache_clear()


class Filter(SafeExceptionReporterFilter):
    cleansed_substitute = "(gone)"
    hidden_settings = re.compile("^pin$")
