"""The status at a terminal."""
