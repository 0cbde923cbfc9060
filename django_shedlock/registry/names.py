"""Names of locks that depend on the arguments of a call."""

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.locks.configuration import check_name, full_name

if sys.version_info >= (3, 14):
    from annotationlib import Format


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """Return its signature, also if an annotation can't be evaluated (PEP 649)."""
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


class NameTemplate:
    """
    The name that a decorator gives a lock, with fields as in ``"import:{tenant}"``.

    Each call fills the fields with its arguments, so each tenant has its own lock.
    Other braces are written twice. ``path`` names the job in messages. Raises
    ``InvalidLockConfiguration`` if a field is no parameter of ``function``.
    """

    def __init__(self, text: str, function: Callable[..., object], path: str):
        self._text, self._path = text, path
        # Formatting the text without arguments collects its fields.
        fields: dict[str, _AnyArgument] = defaultdict(_AnyArgument)
        try:
            self.name: str = text.format_map(fields)
        except ValueError as error:
            raise InvalidLockConfiguration(
                f"Lock name {text!r} is no format string: {error}. Name a parameter of "
                f"{path} in each field, as in {{tenant}}, and double all other braces."
            ) from error
        self.has_fields: bool = bool(fields)
        if not fields:
            return
        self.name = text
        """The lock's name, or the text that makes it if that has fields."""
        self._signature = signature_of(function)
        parameters = self._signature.parameters
        rest = [p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD]
        self._rest = rest[0] if rest else ""  # its keys may be fields as well
        for field in fields:
            if field not in parameters and not (rest and field.isidentifier()):
                raise InvalidLockConfiguration(
                    f"Lock name {text!r}: {{{field}}} is no parameter of {path}, which "
                    f"has {', '.join(parameters) or 'none'}."
                )

    def fill(self, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
        """
        Return the name of the lock for a call with these arguments.

        Raises ``InvalidLockConfiguration`` if no lock can have that name.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {**bound.arguments, **bound.arguments.get(self._rest, {})}
        try:
            name = self._text.format_map(arguments)
            check_name(name)
            check_name(full_name(name))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            is_explained = isinstance(error, InvalidLockConfiguration)
            raise InvalidLockConfiguration(
                f"The arguments of this call of {self._path} make no name of "
                f"{self._text!r}: {error if is_explained else described(error)}"
            ) from error
        return name


class _AnyArgument:
    """Stands for an argument: it has every attribute, item and format."""

    def __getattr__(self, name: str) -> "_AnyArgument":
        return self

    __getitem__ = __getattr__

    def __format__(self, specification: str) -> str:
        # As part of a format, as in "{tenant:{width}}", it must be a number.
        return "1"
