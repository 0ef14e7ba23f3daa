"""Keys of changed rows, found again in data files: what a commit of a mutation table deletes, and how it is written."""
