"""The source: membership in the consumer group, the bounds of topics, and how tasks read them."""
