"""Read archived records back."""
