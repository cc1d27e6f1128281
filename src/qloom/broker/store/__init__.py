"""What the broker keeps on disk."""
