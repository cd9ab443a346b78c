"""How much of a copied segment a measure reads; also what a planned verification says of itself."""

from include.tiering.model.depth import Depth as Depth
