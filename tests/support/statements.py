"""Statements that fail, or at which something happens: for ``execute_wrapper()``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

VERBS = {"UPDATE": "UPDATE", "INSERT": "INSERT INTO", "DELETE": "DELETE FROM"}


def says(sql: str, verb: str, table: str = r"\w+") -> bool:
    """Return whether the statement does this to the table."""
    if verb == "SELECT":
        return sql.startswith(verb) and re.search(rf"\b{table}\b", sql) is not None
    return re.match(rf"{VERBS[verb]} [\"`]?{table}[\"`]? ", sql) is not None


class Failing:
    """Fails the first statements with the driver's own error, before or after them."""

    def __init__(self, error: Exception, *, times: int, after: bool = False):
        self.error = error
        self.times = times
        self.after = after
        self.calls = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: Any, ctx: Any) -> Any:
        if not says(sql, "UPDATE") and not says(sql, "INSERT"):
            return execute(sql, params, many, ctx)
        self.calls += 1
        if self.calls > self.times:
            return execute(sql, params, many, ctx)
        if self.after:
            execute(sql, params, many, ctx)
        raise self.error


class Only:
    """Passes on only the statements with a verb."""

    def __init__(self, verb: str, wrapper: Failing):
        self.verb = verb
        self.wrapper = wrapper

    def __call__(self, execute: Any, sql: str, params: Any, many: Any, ctx: Any) -> Any:
        wrapped = says(sql, self.verb)
        return (
            self.wrapper(execute, sql, params, many, ctx)
            if wrapped
            else execute(sql, params, many, ctx)
        )


class Once:
    """Does something before or after the first statement with a verb."""

    def __init__(self, verb: str, step: Callable[[], Any], *, before: bool = False):
        self.verb, self.step, self.before = verb, step, before
        self.is_done = False

    def __call__(self, execute: Any, sql: str, params: Any, many: Any, ctx: Any) -> Any:
        is_first = not self.is_done and says(sql, self.verb)
        self.is_done = self.is_done or is_first
        if is_first and self.before:
            self.step()
        result = execute(sql, params, many, ctx)
        if is_first and not self.before:
            self.step()
        return result
