"""The one place where adapters are chosen and joined: from settings to a `Tiering` that has every verb."""

from include.tiering.wiring.tiering import Tiering, open_tiering

__all__ = ["Tiering", "open_tiering"]
