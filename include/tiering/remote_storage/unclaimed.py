"""A decision that was taken while the store could not be claimed: what that means for copies of the database.

`not_claimed` says why it could not be.
"""


def unclaimed_words(not_claimed: str) -> str:
    """In one sentence."""
    return (
        "warning: a backup of the database from before this would not be refused, as the store could not be claimed"
        f" (the same command again tries it again): {not_claimed}"
    )


def unclaimed_withdrawal(not_claimed: str | None) -> str:
    """What goes behind the sentence about a withdrawn run; empty if the store was claimed."""
    if not_claimed is None:
        return ""
    return f"; a copy of this database may go on with it, the store could not be claimed: {not_claimed}"
