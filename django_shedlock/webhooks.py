"""Post to a web address that may be secret: a chat's, or one that waits for pings."""

import time
from typing import Any
from urllib.parse import urlsplit

POST_TIMEOUT_SECONDS = 5.0
"""For the connection, and again for each part of the answer."""
POST_TRIES = 3
POST_RETRY_SECONDS = 1.0


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
    import requests  # not before there is something to send

    for left in reversed(range(POST_TRIES)):
        try:
            answer = requests.post(
                address,
                timeout=POST_TIMEOUT_SECONDS,
                allow_redirects=False,
                stream=True,
                **content,
            )
            answer.close()  # without reading its body, which may never end
        except Exception as error:  # of any of its layers; their texts have the path
            problem = type(error).__name__
        else:
            if 200 <= answer.status_code < 300:
                return
            problem = f"it answered with the status {answer.status_code}"
        if left:
            time.sleep(POST_RETRY_SECONDS)
    raise OSError(f"{urlsplit(address).netloc.rpartition('@')[2]}: {problem}")
