"""Where tasks run: on classic Spark, on Spark Connect, or in this process.

An engine maps a function over texts. A batch is a list of tasks as JSON, and the results come back as JSON:

    >>> from calving.engine.interface import LocalEngine
    >>> engine = LocalEngine()
    >>> engine.map(str.upper, ["first task", "second task"])
    ['FIRST TASK', 'SECOND TASK']
    >>> engine.close()

An engine retries what may succeed, cancels jobs that hang, and raises what cannot be mended as an error of
``calving.errors``. It knows nothing of tables and offsets.
"""
