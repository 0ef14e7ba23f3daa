"""Control events as bytes. They are the same bytes that the Java sink writes (1.11 and newer).

    >>> from uuid import UUID
    >>> from calving.model.events import StartCommit
    >>> from calving.wire.codec import Message, decode, encode
    >>> data = encode(Message(UUID(int=2), 1_000_000, "group", StartCommit(UUID(int=1))))
    >>> data[:2].hex(), decode(data).event == StartCommit(UUID(int=1))
    ('c201', True)

The bytes are Avro with their schema in front, as Java's ``AvroUtil`` writes them. ``checks`` bounds what an event from
the log may hold: whoever may write there can send anything.
"""
