"""Records as they travel from stage to stage: values, their shapes, and JSON text.

A block of records is a few columns. Payloads are bytes, as an Arrow column:

    >>> from calving.records.values import Payloads
    >>> keys = Payloads([b"17", None, b"18"])
    >>> keys.nulls, keys.size, list(keys.take([0, 2]))
    ([1], 4, [b'17', b'18'])

``Values`` are decoded payloads: data, whether a schema typed them, and the place of each in the block. ``Records`` are
the columns that transforms see. No stage changes a record's place, so its offset, key and headers stay known.
"""
