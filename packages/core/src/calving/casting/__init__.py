"""Values into Iceberg columns: whole columns where Arrow does it exactly, value by value where it does not."""
