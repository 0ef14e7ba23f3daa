"""The status of a sink: one immutable value. The loops replace it, and the presenters read it."""
