"""Construct adapters and pass them to services. `open_app` makes an `App` from settings."""

from include.tiering.app.app import App, open_app

__all__ = ["App", "open_app"]
