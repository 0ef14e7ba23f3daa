"""Real services for the demo and the tests: containers if Docker answers, otherwise local processes on loopback."""
