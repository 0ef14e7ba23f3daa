"""The timestamps of records. A producer may stamp its records with any number."""

from __future__ import annotations

_LAST_MS = 253_402_300_799_999
"""The end of the year 9999. Milliseconds after it are microseconds or nanoseconds that a producer has mistaken for
milliseconds.
"""


def is_moment(millis: int) -> bool:
    """Whether a record's timestamp, in milliseconds since 1970, is a moment of the years 1970 to 9999. Any other number
    is no time at which the record can have been made, so it counts for no valid-through time.
    """
    return 0 <= millis <= _LAST_MS
