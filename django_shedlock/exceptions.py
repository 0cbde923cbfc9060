"""The errors. A skipped job is none of them: it is a normal result."""


class ShedLockError(Exception):
    """The base of all errors of this package."""


class LockNotAcquired(ShedLockError):
    """
    Another worker holds the lock, and did not release it within ``wait``.

    You meet it on entering ``hold()`` or ``ahold()``. Catch it to do something
    else, wait longer, or use ``execute()``, where a held lock is a plain result.
    """


class LockLost(ShedLockError):
    """
    The lock is no longer ours: its lease ended, or an operator released it.

    You meet it in ``Lock.extend()``, ``extend_active_lock()`` and
    ``assert_locked()``. Another worker may be running the same job by now, so
    stop; give the job a longer ``lock_at_most_for``, or extend it earlier.
    """


class NoActiveLock(ShedLockError):
    """
    This code runs under no lock, or not under this one any more.

    You meet it in ``assert_locked()``, ``current_lock()``, ``extend_active_lock()`` and
    ``Lock.assert_locked()``. Call them inside a job with ``@scheduler_lock``, or
    inside ``with hold(...)``, in the same thread or task.
    """


class LockProviderError(ShedLockError):
    """
    The store of the locks failed, so the job did not run.

    You meet it when a lock is acquired, extended or released while the store is
    unreachable or its table is missing. ``__cause__`` is the driver's error, except if
    the table is missing.
    """

    is_uncertain = False
    """Whether the store may have done it nevertheless: its answer was lost."""
    is_blocked = False
    """Whether the store is well, and a transaction has the lock's record."""


class InvalidLockConfiguration(ShedLockError, ValueError):
    """
    A lock's name or options cannot work.

    You meet it when the decorator is applied, or when the lock is acquired if the
    fault lies in the settings. The text names the lock, the value, and the rule.
    """


def message_of(error: BaseException) -> str:
    """
    Return ``str(error)``, or say what it raised.

    Nobody's ``__str__`` ends the process or replaces another error, not even one that
    raises ``SystemExit``. What a signal's handler raises meanwhile passes through.
    """
    try:
        return str(error)
    except BaseException as failure:
        if not isinstance(failure, Exception) and _has_message(error):
            raise
        return f"(no message: str() raised {type(failure).__name__})"


def _has_message(error: BaseException) -> bool:
    try:
        str(error)
    except BaseException:
        return False
    return True


def described(error: BaseException) -> str:
    """Return the error's type and message, as in ``ValueError: no file``."""
    return f"{type(error).__name__}: {message_of(error)}"
