"""calving imports it for its effect alone."""
