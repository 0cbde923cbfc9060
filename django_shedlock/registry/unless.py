"""Calls of a command that only look: they are no runs, so they need no lock."""

from collections.abc import Mapping, Sequence

from django_shedlock.exceptions import InvalidLockConfiguration

DRY_RUN = "dry_run"
"""The flag that counts where a command has no ``unless``."""


def parse_unless(name: str, unless: object) -> tuple[str, ...] | None:
    """
    Return the ``dest`` of each option with which a call of the command only looks.

    ``None`` stands for the default. Raises ``InvalidLockConfiguration`` naming the lock
    ``name`` unless it is a list of names.
    """
    if unless is None:
        return None
    if isinstance(unless, list | tuple) and all(
        isinstance(each, str) and each.isidentifier() for each in unless
    ):
        return tuple(unless)
    raise InvalidLockConfiguration(
        f"Lock {name!r}: unless ({unless!r}) must be a list of the command's options, "
        'each by its `dest`, for example ["dry_run"].'
    )


def only_looks(unless: Sequence[str] | None, options: Mapping[str, object]) -> bool:
    """
    Return whether a call of the command with these options only looks.

    By default it does with ``--dry-run``, if that is a flag of the command.
    """
    if unless is None:
        return options.get(DRY_RUN) is True
    return any(options.get(option) for option in unless)
