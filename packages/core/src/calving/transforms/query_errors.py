"""Failures of queries, also where DuckDB is not installed."""

from __future__ import annotations

CUT = "DuckDB's error is cut within a character"
"""In the place of an error that Python cannot read: by its version, it has no text or fails to decode it."""


class QueryEndedError(Exception):
    """The query took more than a limit, or it has ended its process: some of its rows are bad."""
