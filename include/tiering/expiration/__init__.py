"""Delete segments that have expired."""
