"""The command line: one module per command, and ``main``, which declares them all.

A command loads the settings, does its work with the packages below, and prints for people, or JSON for programs::

    calving init                # write a first configuration
    calving validate sink.toml  # check settings, broker, backend, catalog and tables, and write nothing
    calving run sink.toml       # until it is stopped
    calving status sink.toml    # exit code 3: the sink is DEGRADED

A ``CalvingError`` is printed as one line, without a traceback, and its class decides the exit code.
"""
