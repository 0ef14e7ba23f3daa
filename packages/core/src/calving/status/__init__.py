"""What a sink knows of itself, as one immutable value that its loops replace and everybody presents."""
