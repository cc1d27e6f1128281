"""What may be in a payload, by its kind: read strictly, in linear time, and without running anything of it."""
