"""Records as they travel from stage to stage: values, their shapes, and JSON text."""
