"""Control events as bytes, the same bytes that the Java sink writes (1.11 and newer)."""
