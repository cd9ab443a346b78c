"""Run by alembic: applies revisions on the connection, and in the transaction, of `migrations.upgrade`."""

from alembic import context

from include.tiering.database.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
