"""Restores of topics from remote storage into another place, without a broker."""
