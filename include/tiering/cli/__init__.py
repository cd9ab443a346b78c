"""The command line `./tiering`, which calls the same services as the DAGs, without Airflow.

`app` lists the commands. Each use case has a module of commands with the name of its package (`copying`, `expiration`,
...). `command` has what they share: options, opening the app, output, errors and exit codes; `progress` has the
progress bars. Modules of commands import typer and a few small modules at their head, but most of the library and the
progress bars inside functions, so that `--help` is fast.
"""
