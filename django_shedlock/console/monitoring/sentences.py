"""Sentences for people, in their language, and for logs and programs, in English."""

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext


class Said(str):
    """A text in English, for logs and programs, that also knows how to be ``told``."""

    parts: Sequence[tuple[str, Mapping[str, object]]] = ()

    @property
    def told(self) -> str:
        """The text in the reader's language."""
        return " ".join(
            gettext(text) % {key: getattr(v, "told", v) for key, v in values.items()}
            for text, values in self.parts
        )


def say(text: str, /, **values: object) -> Said:
    """Return the text, which ``gettext_noop()`` has marked, with these values."""
    said = Said(text % values)
    said.parts = ((text, values),)
    return said


def together(*said: Said | None) -> Said:
    """Return these sentences one after the other."""
    told = [each for each in said if each]
    joined = Said(" ".join(told))
    joined.parts = [part for each in told for part in each.parts]
    return joined
