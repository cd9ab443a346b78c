"""Make metadata from what is stored."""
