"""Hide secrets in texts before they are stored, mailed, posted or shown."""

import re
from typing import Any

from django_shedlock import conf
from django_shedlock.signals import logger

CHAT_ADDRESS = re.compile(
    # An error of urllib3 has the path without the host.
    r"((?:"
    r"\bhooks\.slack(?:-gov)?\.com/\w+/"
    r"|\.office(?:365)?\.com(?::\d+)?/webhook(?:b2)?/|/webhookb2/"  # Teams
    r"|\.(?:logic\.azure|powerplatform)\.com(?::\d+)?/"  # Teams, by its workflows
    r"|(?<=://)[\w.:-]+/hooks/(?=\w)"  # Mattermost, Rocket.Chat, Zapier
    r"|/services/(?=T\w{5,}/B\w{5,}/)"  # Slack
    r"|/webhooks/(?=\d{5,}/)"  # Discord
    r"|/bot(?=\d+:)"  # Telegram
    r"))[^\s'\"<>)]+?(?=/(?:send|get|edit|delete)\w+\b|[\s'\"<>),]|$)"
)
"""Whoever knows the rest of the address can write to the chat."""
URL_PASSWORD = re.compile(r"(://[^\s:@/]*:)\S{1,500}(?=@)")
"""A password may have any character but a space, and ends at the last @."""
URL_TOKEN = re.compile(r"(https?://)[^\s:@/]{16,}(?=@)")
HEADER = (
    r"""\b(?:proxy-)?authorization\\?['"]?(?:\s*[:=]|(?<=['"]),)[ \t]*+"""
    r"""(?:b(?=['"]))?+\\?+['"]?+"""
)
ONE_WORD_SCHEME = r"(?:bearer|basic|token|negotiate|apikey)[ \t]+"
AUTHORIZATION = re.compile(rf"""({HEADER}{ONE_WORD_SCHEME})[^\s'"\\]+""", re.IGNORECASE)
OTHER_AUTHORIZATION = re.compile(
    rf"""({HEADER}(?!{ONE_WORD_SCHEME}|(?:denied|failed|missing|required|refused)\b))"""
    r"""(?:digest\b[^\n]+|[^\n'"\\]+)""",
    re.IGNORECASE,
)
"""Of an unknown scheme, nobody knows where the secret begins, nor where it ends."""
BEARER = re.compile(
    r"(\b(?:bearer|basic)[ \t]+)(?=[\w+/.~-]*[\d=])[\w+/.~=-]{8,}", re.IGNORECASE
)
"""Words, as in "basic authentication", have no digit."""
COOKIE = re.compile(
    r"""(\b(?:set-)?cookie\\?['"]?(?:\s*:|(?<=['"]),)[ \t]*\\?['"]?)[\w.-]+=[^'"\n]+""",
    re.IGNORECASE,
)
APPRISE = re.compile(
    r"\b((?:slack|discord|tgram|mmosts?|rockets?|msteams|workflows|pover|gchat|jsons?"
    r"|mailtos?|matrixs?|signals?|ntfys?|zulip|wxteams|webexteams|pagerduty|opsgenie"
    r"|gotifys?|pbul|ifttt|azure|o365|mailgun|sendgrid|twilio)://)[^\s'\"<>]+",
    re.IGNORECASE,
)
"""An address that ``check --notify`` takes; most of it is secret."""
ODBC_PASSWORD = re.compile(r"(;[ \t]*pwd=)[^;\s]+", re.IGNORECASE)
PATTERNS = (
    ODBC_PASSWORD,
    CHAT_ADDRESS,
    APPRISE,
    URL_PASSWORD,
    URL_TOKEN,
    AUTHORIZATION,
    OTHER_AUTHORIZATION,
    BEARER,
    COOKIE,
)
"""The first group of each is kept, and the rest of the match is hidden."""
NAME = re.compile(
    r"""(?<![\w.-])(?P<quote>\\?['"]?)(?P<name>[\w.-]++)(?P=quote)(?:"""
    r"""(?P<is>\s*=(?!=)\s*|(?<=['"])\s*:\s*)|(?P<colon>:[ \t]*)"""
    r"""|(?P<comma>(?<=['"]),\s*)|(?P<space>[ \t]+))"""
)
"""A name with what stands between it and its value."""
VALUE = re.compile(
    r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|\\"(?:(?!\\")[^\n])*\\"|\S+"""
)
SECRET_NAME = re.compile(
    r"(?:password|passwd|passphrase|secret|token"
    r"|(?:api|access|secret|private|auth|signing)[_-]?key)$",
    re.IGNORECASE,
)
"""A colon, a comma or a space may also follow other words, such as "KeyError"."""
NO_VALUE = {
    "is": re.compile(r"lambda\b"),
    # The types of parameters, in a traceback's lines of code.
    "colon": re.compile(
        r"[})\]>,;]|(?:str|bytes|int|bool|object|None|Any)(?=[\s,)|=]|$)"
    ),
    "comma": re.compile(r"(?!)"),
    "space": re.compile(r"-|(?:is|was|has|must|needs|and|or|for|to)(?=\s|$)"),
}
"""What no secret begins with, by what stands between it and its name."""


def scrubbed(text: str) -> str:
    """Return what ``SHEDLOCK_HISTORY_SCRUB`` leaves of a text; nothing if it fails."""
    try:
        return str(conf.HISTORY_SCRUB.function(text)) if text else text
    except Exception:  # whatever the project's function raises
        logger.exception("SHEDLOCK_HISTORY_SCRUB failed: a text is left out.")
        return ""


def without_secrets(text: str) -> str:
    """
    Return the text without passwords, tokens, and addresses of chats.

    The default of ``SHEDLOCK_HISTORY_SCRUB``. In ``name=value`` the value is hidden if
    the project's ``DEFAULT_EXCEPTION_REPORTER_FILTER`` hides settings of this name. To
    hide too much does no harm.
    """
    # Not before it is needed: it imports Django's templates and URLs.
    from django.views import debug

    known: Any = debug.get_default_exception_reporter_filter()
    if not isinstance(known, debug.SafeExceptionReporterFilter):
        known = debug.SafeExceptionReporterFilter()
    hidden: str = known.cleansed_substitute

    def hide(found: re.Match[str]) -> str:
        return str(found[1]) + hidden

    for pattern in PATTERNS:
        text = pattern.sub(hide, text)
    return _without_values(text, known.hidden_settings, hidden)


def _without_values(text: str, names: re.Pattern[str], hidden: str) -> str:
    """Hide the values of these names, and of those that are secret everywhere."""
    kept, done, position = [], 0, 0
    while found := NAME.search(text, position):
        position = found.end()
        if not _is_secret(found, names):
            continue
        if (value := VALUE.match(text, position)) is not None:
            kept += [text[done:position], hidden]
            done = position = value.end()
    return "".join([*kept, text[done:]])


def _is_secret(found: re.Match[str], names: re.Pattern[str]) -> bool:
    """Return whether a secret follows this match of ``NAME``."""
    name, sign = found["name"], str(found.lastgroup)
    if NO_VALUE[sign].match(found.string, found.end()):
        return False
    if sign == "is":
        return bool(names.search(name))
    # An option's value follows after a space, what is wrong with it after a colon.
    is_option = name.startswith("--")
    if sign == "comma" or is_option is (sign == "space"):
        return bool(SECRET_NAME.search(name))
    return False
