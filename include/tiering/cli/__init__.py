"""The command line `./tiering`: the same services as in the DAGs, without Airflow.

`app` lists the commands. Each use case has a module of commands with the name of its package (`copying`, `expiration`,
...). `command` has what they share: options, opening the app, output, errors and exit codes; `progress` has the
progress bars. Modules import typer at their head, but the library and rich's progress bars inside functions, so that
`--help` is fast.
"""
