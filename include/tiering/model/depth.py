"""How much of a copied segment a measure reads."""

from enum import StrEnum


class Depth(StrEnum):
    """Both ask the store for every object's length and checksum, and read manifest and indexes back whole.

    SHALLOW reads a range at the start and one at the end of the log besides, a few KiB: it finds what is missing, cut
    off, exchanged or misdescribed. DEEP reads every byte of the log once, paced by the fetch quota: it finds each batch
    that is damaged or out of its place, and each index entry that does not point where it says.
    """

    SHALLOW = "shallow"
    DEEP = "deep"
