"""Set up, look, change configs, answer questions."""
