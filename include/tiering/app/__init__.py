"""The only package that constructs adapters and passes them to services: from settings to an `App`."""

from include.tiering.app.app import App, open_app

__all__ = ["App", "open_app"]
