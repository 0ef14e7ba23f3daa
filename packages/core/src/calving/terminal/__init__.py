"""The status at a terminal: the live view of ``calving run``, and the words that ``calving status`` shares with it.

    >>> from calving.terminal.texts import count, duration
    >>> duration(75.0), count(1_234_567)
    ('75 s', '1,234,567')

``live`` draws one immutable status, repeats that while the sink runs, and keeps log lines above it. What is not a
terminal gets log lines alone.
"""
