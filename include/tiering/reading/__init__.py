"""Read back what was archived."""
