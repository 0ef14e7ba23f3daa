"""Coordination backends: their interface, how they are found, and the backend in memory."""

from calving.backend.interface import Backend, ControlLog, Cursor, Session, SinkIdentity

__all__ = ["Backend", "ControlLog", "Cursor", "Session", "SinkIdentity"]
