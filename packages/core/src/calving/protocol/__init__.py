"""The commit protocol as machines that take values and return effects. No I/O, no clock, no randomness, no logging."""
