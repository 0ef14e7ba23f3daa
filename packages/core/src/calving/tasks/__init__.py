"""What runs on executors: ranges in, data files and dead letters out."""
