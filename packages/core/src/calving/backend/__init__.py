"""Coordination backends: the interface, how they are found, and the one in memory."""
