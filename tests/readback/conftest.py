"""The data plane's fixtures serve here too."""

from tests.data.conftest import fill, plane

__all__ = ["fill", "plane"]
