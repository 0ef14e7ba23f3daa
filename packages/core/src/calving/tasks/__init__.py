"""The tasks on executors: from offset ranges to data files and dead letters.

A task is a function of its ``TaskSpec``. It talks neither to the catalog nor to the control log::

    for block in reader.read(spec.ranges):
        decoded = decode(block)                  # decoding.py: bytes to columns, bad values apart
        transformed = chain.apply(decoded)       # columns.py
        for tables, values in route(transformed):  # routing.py
            rows = convert(tables, values)       # delivery.py: rows, bad values, schema changes
            write(rows)                          # writers.py; shuffle.py sends rows to other tasks
        check that every record has one outcome  # task.py
    return files, counts, dead letters           # or the schema changes, and no files

``run_json`` is that function for engines that send text. The page "The life of a record" shows the values in between.
"""
