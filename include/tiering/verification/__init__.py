"""Measure what is stored and record verdicts."""
