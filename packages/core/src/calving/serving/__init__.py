"""The status of a sink over HTTP: metrics, health, Kafka Connect's REST, and a page."""
