"""What catalogs need besides pyiceberg."""
