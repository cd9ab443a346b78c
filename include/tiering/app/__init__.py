"""The only package that constructs adapters and passes them to services. `open_app` makes an `App` from settings."""

from include.tiering.app.app import App, open_app

__all__ = ["App", "open_app"]
