"""Alembic runs this module: it applies revisions in the connection and transaction that `migrations.upgrade` opened."""

from alembic import context

from include.tiering.database.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
