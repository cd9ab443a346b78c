"""Delete what retention has passed."""
