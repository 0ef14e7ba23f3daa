"""The catalogs of the tests of tables serve here too."""

from tests.iceberg.conftest import catalog, hive_keys

__all__ = ["catalog", "hive_keys"]
