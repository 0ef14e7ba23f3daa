"""Imports that need care: packages that only some sinks need, with the commands that install them, and slow modules,
which only one thread at a time may import.

The modules of pyiceberg import each other in a circle. If two threads begin to import different modules of the circle,
Python finds that each thread waits for the other, and raises an error in one of them.
"""

from __future__ import annotations

import gc
import threading

from calving.errors import first_line

_INSTALLED_BY = {
    "adlfs": "calving[azure]",
    "boto3": "calving[s3]",
    "botocore": "calving[s3]",
    "duckdb": "calving[sql]",
    "gcsfs": "calving[gcs]",
    "azure": "calving[azure]",
    "google": "calving[registry]",
    "google.auth": "calving[gcs]",
    "grpc": "calving[connect]",
    "opentelemetry": "calving[otel]",
    "pandas": "calving[connect]",
    "kerberos": "pyiceberg[hive-kerberos]",
    "puresasl": "pyiceberg[hive-kerberos]",
    "psycopg2": "calving[postgres]",
    "pymysql": "calving[mysql]",
    "s3fs": "calving[s3]",
    "thrift": "calving[hive]",
}


def reason(error: BaseException, extra: str | None = None) -> str:
    """The error in one line. If a package is missing, the line has the command that installs it.

    ``extra``: the extra of calving that installs the package, if it is known which feature needs the package.
    """
    missing = _missing(error)
    if missing is None:
        return first_line(error)
    name, command = missing
    return f'the package {name} is not installed: pip install "{f"calving[{extra}]" if extra else command}"'


def _missing(error: BaseException) -> tuple[str, str] | None:
    """The missing package that this error or one of its causes names, and the distribution that installs it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ModuleNotFoundError):
        cause = cause.__cause__
    full = (cause.name if cause is not None else None) or ""
    name = full.partition(".")[0]
    command = _INSTALLED_BY.get(full, _INSTALLED_BY.get(name))
    return None if command is None else (name, command)


class _Importing:
    """A lock; and while it is held, no garbage is collected."""

    def __init__(self) -> None:
        self._lock, self._collected, self._keeps = threading.Lock(), False, False

    def keep(self) -> None:
        """Leave out all that is imported now, and from now on, when garbage is collected. Objects of other code would
        be left out, too, so only a process that runs nothing but calving may ask for it.
        """
        self._keeps = True
        gc.freeze()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._collected = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._keeps:
            gc.freeze()
        if self._collected:
            gc.enable()
        self._lock.release()


IMPORTING = _Importing()
"""Held by each thread that imports an engine or a catalog. A start imports both at the same time. Nearly all that an
import makes stays, so to look for garbage meanwhile costs a start a tenth of a second.
"""
