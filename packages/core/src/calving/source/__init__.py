"""The Kafka side of a worker: membership of the consumer group, and what the topics hold."""
