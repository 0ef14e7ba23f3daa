"""The source: membership of the consumer group, what the topics hold, and how tasks read them."""
