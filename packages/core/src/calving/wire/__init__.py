"""Control events as bytes. They are the same bytes that the Java sink writes (1.11 and newer)."""
