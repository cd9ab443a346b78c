"""Counters of the project's structure, taken from the code itself; `python -m local.structure` prints them."""
