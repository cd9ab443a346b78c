"""Fixtures of more than one module: a session fixture that two modules import would be two."""

from tests.doubles.spark import spark

__all__ = ["spark"]
