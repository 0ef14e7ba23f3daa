"""The forms of what workers write into the control log and the tables, by number.

A form is what all versions that know it write and read. A later version adds a form when it writes something that
earlier versions would misread, and uses it once all workers know it. Every event that is written in it names it.
"""

from __future__ import annotations

from typing import NamedTuple


class StoredForm(NamedTuple):
    """``version``: the lowest version of calving that knows the form."""

    number: int
    version: str


OLDEST = StoredForm(0, "0.1.0")
"""The form of version 0.1.0 and of the Java sink, whose workers do not describe themselves."""
NEWEST = StoredForm(1, "0.2.0")
"""The newest form that this version knows: workers describe themselves in their answers."""
