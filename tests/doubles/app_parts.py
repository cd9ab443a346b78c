"""Other parts for an `App`, in the place of those that the settings choose."""

from typing import Any

from include.tiering.app import App
from include.tiering.app.adapters import Stores


def put(app: App, **parts: object) -> None:
    """Put each part where an `App` keeps what has this name: a store, or another adapter; before services are made."""
    known: dict[str, Any] = {name: part for name, part in parts.items() if name in ("engine", "cluster_id")}
    app.adapters.__dict__.update(known)
    for name, part in parts.items():
        if name == "handover_ports":
            app.__dict__[name] = part
        elif hasattr(Stores, name):
            app.adapters.stores.__dict__[name] = part
        else:
            app.adapters.__dict__[name] = part
