"""Read archived records back from remote storage."""
