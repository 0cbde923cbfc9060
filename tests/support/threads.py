"""Threads of a test, of which none may fail unseen."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import connections


def run_threads(count: int, work: Callable[[], None]) -> None:
    """Run ``work`` in that many threads, and fail if one of them does."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
