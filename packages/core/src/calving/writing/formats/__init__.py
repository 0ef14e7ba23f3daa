"""File formats: one file each, found by the value of ``write.format.default``."""

from calving.writing.formats.interface import Ending, FileFormat, FileWriter
from calving.writing.properties import WriteProperties

__all__ = ["Ending", "FileFormat", "FileWriter", "WriteProperties"]
