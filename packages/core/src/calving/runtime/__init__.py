"""The drivers: they carry out the effects of the machines. ``app`` wires them together."""
