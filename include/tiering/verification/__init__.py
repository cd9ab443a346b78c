"""Measure stored segments, evaluate the quality rules, and record the verdicts."""
