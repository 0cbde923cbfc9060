"""Post to a web address that may be secret: a chat's, or one that waits for pings."""

import time
from typing import Any
from urllib.parse import urlsplit

TIMEOUT = 5.0
"""Seconds for the connection, and again for each part of the answer."""
TRIES = 3
PAUSE = 1.0
"""Seconds between two tries."""


def is_address(text: str) -> bool:
    """Return whether this is an address to which ``post()`` can send."""
    try:
        parts = urlsplit(text)
        is_web = parts.scheme in {"http", "https"}
        return is_web and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def post(address: str, **content: Any) -> None:
    """
    Send ``content``, given as to requests; use the environment's proxies.

    A try that fails is repeated, a redirect is not followed. Raises ``OSError`` unless
    the answer is a success. It shows nothing of the address but the host.
    """
    for left in reversed(range(TRIES)):
        if not (problem := _try(address, content)):
            return
        if left:
            time.sleep(PAUSE)
    raise OSError(f"{urlsplit(address).netloc.rpartition('@')[2]}: {problem}")


def _try(address: str, content: dict[str, Any]) -> str:
    import requests  # not before there is something to send

    try:
        answer = requests.post(
            address, timeout=TIMEOUT, allow_redirects=False, stream=True, **content
        )
        answer.close()  # without a look at its body, which may never end
    except Exception as error:  # whatever its layers raise; their texts have the path
        return type(error).__name__
    status = answer.status_code
    return "" if 200 <= status < 300 else f"it answered with the status {status}"
