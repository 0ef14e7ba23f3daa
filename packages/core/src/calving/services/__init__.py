"""Real services for the demo and the tests: local processes on loopback, or containers where Docker answers."""
