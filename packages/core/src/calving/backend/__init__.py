"""Coordination backends: the interface, how they are found, and the one in memory."""

from calving.backend.interface import Backend, ControlLog, Cursor, Session, SinkIdentity

__all__ = ["Backend", "ControlLog", "Cursor", "Session", "SinkIdentity"]
