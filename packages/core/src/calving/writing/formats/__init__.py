"""File formats, one module each. ``write.format.default`` names the format of a table."""

from calving.writing.formats.interface import Ending, FileFormat, FileWriter
from calving.writing.properties import WriteProperties

__all__ = ["Ending", "FileFormat", "FileWriter", "WriteProperties"]
