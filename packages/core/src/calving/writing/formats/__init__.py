"""File formats: Parquet, ORC and Avro behind one interface, found by the table's property ``write.format.default``.

A format checks rows before they are written, and opens files. A writer of it takes tables of rows::

    file_format = registry.file_format(schema, properties)
    writer = file_format.open(output_stream)
    writer.write(rows)
    ending = writer.close()  # split offsets, and the bounds that the format has itself

``metrics`` counts values, nulls and bounds for manifests, for every format alike. Packages can add formats; their
contract is ``calving.testing.FormatContract``.
"""

from calving.writing.formats.interface import Ending, FileFormat, FileWriter
from calving.writing.properties import WriteProperties

__all__ = ["Ending", "FileFormat", "FileWriter", "WriteProperties"]
