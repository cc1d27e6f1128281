"""Who asks, and in which project: tokens, munge credentials, peers and members."""
