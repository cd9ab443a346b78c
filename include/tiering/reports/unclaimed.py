"""A decision that was taken while the store could not be claimed: what that means for copies of the database."""


def unclaimed_words(not_claimed: str) -> str:
    """`not_claimed` says why; in one sentence."""
    return (
        "warning: a backup of the database from before this would not be refused, as the store could not be claimed"
        f" (the same command again tries it again): {not_claimed}"
    )
