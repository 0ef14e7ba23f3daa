"""The operations of records on the rows of a mutation table (rule M1)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.tables import RowMutations
from calving.records.values import Content, Objects, Values, field, texts, texts_of_any_case
from calving.writing.changes import DELETE, INSERT, TRUNCATE, UPDATE

UNCLEAR = 4
"""A text that no source is known to write: an insert (M1), of which the log tells."""
_INSERTS = pa.array([*"CIRL", "CREATE", "INSERT", "READ", "LOAD", "REFRESH", "SNAPSHOT", "BOOTSTRAP-INSERT"])
"""The texts with which sources name inserts, and the first reading of a table."""
_OF_CONTENT: Mapping[Content, int] = {"deleted key": DELETE, "truncate": TRUNCATE}
"""The operations of values whose content decides."""


def operations(values: Values, mutations: RowMutations, *, fold: bool = False) -> pa.Array:
    """The operation of each value (M1). The first letter of its cdc-field decides; if the field is true or false, it
    tells whether the row is deleted. With ``fold``, case is ignored in the name of the field, and the last of several
    such fields counts. Null (the value lacks the field) and ``UNCLEAR`` are inserts.
    """
    if values.content in _OF_CONTENT:
        return pa.repeat(pa.scalar(_OF_CONTENT[values.content], pa.int8()), len(values))
    if mutations.cdc_field is None:
        return pa.repeat(pa.scalar(UPDATE, pa.int8()), len(values.data))
    if fold:
        column: pa.Array = pa.array(texts_of_any_case(values.data, mutations.cdc_field), pa.string())
    else:
        column = _column(values.data, mutations.cdc_field)
    words = pc.utf8_upper(pc.utf8_trim_whitespace(column))
    letters = pc.utf8_slice_codeunits(words, 0, 1)
    cases = [
        (words, "TRUE", DELETE),
        (words, "FALSE", UPDATE),
        (letters, "U", UPDATE),
        (letters, "D", DELETE),
        (letters, "T", TRUNCATE),
    ]
    masks = [pc.fill_null(pc.equal(where, pa.scalar(word)), False) for where, word, _ in cases]
    whether = pc.make_struct(*masks, pc.is_in(words, _INSERTS))
    found = (*(each for _, _, each in cases), INSERT, UNCLEAR)
    named = pc.case_when(whether, *(pa.scalar(each, pa.int8()) for each in found))
    return pc.if_else(column.is_valid(), named, pa.scalar(None, pa.int8()))


def _column(data: pa.Array | Objects, path: str) -> pa.Array:
    """The text of a dotted field of every value."""
    column = None if isinstance(data, list) else field(data, path)
    if column is None or not pa.types.is_string(column.type):
        return pa.array(texts(data, path), pa.string())
    return column
