"""Packages that only some sinks need, and what installs them."""

from __future__ import annotations

from calving.errors import first_line

_INSTALLED_BY = {
    "adlfs": "pyiceberg[adlfs]",
    "boto3": "pyiceberg[glue]",
    "botocore": "pyiceberg[glue]",
    "duckdb": "calving[sql]",
    "gcsfs": "pyiceberg[gcsfs]",
    "google": "calving[registry]",
    "grpc": "calving[connect]",
    "opentelemetry": "calving[otel]",
    "pandas": "calving[connect]",
    "psycopg2": "pyiceberg[sql-postgres]",
    "s3fs": "pyiceberg[s3fs]",
    "thrift": "pyiceberg[hive]",
}


def reason(error: BaseException) -> str:
    """The error in one line; where a package is missing, with the command that installs it."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name not in _INSTALLED_BY:
        return first_line(error)
    return f'the package {name} is not installed: pip install "{_INSTALLED_BY[name]}"'
