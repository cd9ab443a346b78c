"""`./tiering migrate`: set-up."""

import typer

from include.tiering.cli.session import session_of


def migrate(ctx: typer.Context) -> None:
    """Set this deployment up, or upgrade it: database tables, identity of the store, its marker. Harmless to repeat.

    Run it once before the first copy and after each update. The marker binds the store's prefix to this database: a
    store that belongs to another one is refused.
    """
    with session_of(ctx).opened() as app:
        identity = app.set_up.migrate()
    typer.echo(f"set up: cluster {identity.cluster_id}, store {identity.store_id}, generation {identity.generation}")
