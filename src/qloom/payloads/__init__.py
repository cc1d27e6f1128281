"""What may be in an envelope, by its kind: read strictly, in linear time, and without running anything of it."""
