"""The forms of what workers write into the control log and the tables, by number.

A form is what all versions that know it write and read. A later version adds a form when it writes something that
earlier versions would misread, and uses it once all workers know it. Every event that is written in it names it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NUMBER, _VERSION = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+_-]{0,49}")


class StoredForm(NamedTuple):
    """``version``: the lowest version of calving that knows the form."""

    number: int
    version: str

    def __str__(self) -> str:
        return f"{self.number}:{self.version}"

    @staticmethod
    def parse(text: str) -> StoredForm:
        """The form that ``str`` has written.

        :raises ValueError: the text has another form.
        """
        number, _, version = text.partition(":")
        if not (_NUMBER.fullmatch(number) and is_version(version)):
            raise ValueError("a form is its number and the lowest version that knows it")
        return StoredForm(int(number), version)


def is_version(text: object) -> bool:
    """Whether this may be a version: errors tell the user to install it, and anybody may have written it."""
    return isinstance(text, str) and _VERSION.fullmatch(text) is not None


OLDEST = StoredForm(0, "0.1.0")
"""The form of version 0.1.0 and of the Java sink, whose workers do not describe themselves."""
NEWEST = StoredForm(1, "0.2.0")
"""The newest form that this version knows: workers describe themselves in their answers."""
UNMARKED = NEWEST
"""The newest form with the same tables as in the oldest one. Tables name only later forms."""
