"""The data plane's fixtures serve here too."""

from tests.tasks.conftest import fill, plane

__all__ = ["fill", "plane"]
