"""Tools for those who work on the project. Nothing here is a part of a distribution."""
