"""Make metadata from the objects in the store."""
