"""Transforms: the Kafka Connect chain model over columns. One file per family, found by name."""
