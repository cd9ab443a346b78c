"""The command line `./tiering`: the same code as the DAGs, without Airflow.

`app` lists the commands, `commands/` holds one module per command, `session` opens the library for them, `output` shows
what they found, `failures` turns errors into sentences and exit codes. Modules import typer and rich alone at their
head, the library inside functions, so that `--help` answers at once.
"""
