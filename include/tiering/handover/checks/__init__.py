"""Checks of what a handover is about to do, each a pure function of what was gathered."""
