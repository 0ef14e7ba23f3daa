"""The catalog in a file of the tests of tables serves here too."""

from tests.iceberg.conftest import catalog

__all__ = ["catalog"]
