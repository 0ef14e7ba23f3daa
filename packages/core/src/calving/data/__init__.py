"""The data plane: finite, retriable tasks from offset ranges to data files. No catalog, no control log."""
