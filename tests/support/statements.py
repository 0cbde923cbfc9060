"""Statements that fail, or at which something happens: for ``execute_wrapper()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Failing:
    """Fails the first statements with the driver's own error, before or after them."""

    def __init__(self, error: Exception, *, times: int, after: bool = False):
        self.error = error
        self.times = times
        self.after = after
        self.calls = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: Any, ctx: Any) -> Any:
        if not sql.startswith(("UPDATE", "INSERT")):
            return execute(sql, params, many, ctx)
        self.calls += 1
        if self.calls > self.times:
            return execute(sql, params, many, ctx)
        if self.after:
            execute(sql, params, many, ctx)
        raise self.error


class Only:
    """Passes on only the statements that begin with a word."""

    def __init__(self, word: str, wrapper: Failing):
        self.word = word
        self.wrapper = wrapper

    def __call__(self, execute: Any, sql: str, params: Any, many: Any, ctx: Any) -> Any:
        wrapped = sql.startswith(self.word)
        return (
            self.wrapper(execute, sql, params, many, ctx)
            if wrapped
            else execute(sql, params, many, ctx)
        )


class Once:
    """Does something before or after the first statement that begins with a word."""

    def __init__(self, word: str, step: Callable[[], Any], *, before: bool = False):
        self.word, self.step, self.before = word, step, before
        self.is_done = False

    def __call__(self, execute: Any, sql: str, params: Any, many: Any, ctx: Any) -> Any:
        is_first = not self.is_done and sql.startswith(self.word)
        self.is_done = self.is_done or is_first
        if is_first and self.before:
            self.step()
        result = execute(sql, params, many, ctx)
        if is_first and not self.before:
            self.step()
        return result
