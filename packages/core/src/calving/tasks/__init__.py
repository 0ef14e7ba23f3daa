"""The tasks on executors: from offset ranges to data files and dead letters."""
