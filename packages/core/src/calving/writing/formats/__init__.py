"""File formats: one file each, found by the value of ``write.format.default``."""
