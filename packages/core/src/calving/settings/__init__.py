"""Settings: one declaration per key, read from TOML, Kafka Connect JSON or .properties."""
