"""The data source of Spark."""
