"""The status of a sink: one immutable value, which the loops replace and the presenters read."""
