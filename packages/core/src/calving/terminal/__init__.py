"""A status for whoever sits at a terminal."""
