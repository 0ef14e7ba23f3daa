"""The drivers, which carry out the effects of the protocol's machines. ``app`` wires the drivers together."""
