"""The command line `./tiering`: the same code as the DAGs, without Airflow.

`app` lists the commands. One module per use case holds them (`copying`, `expiration`, ...), named like its package;
`session` opens the app for them and turns errors into sentences and exit codes, `options` are those that several share,
`output` and `progress` show what they find and do. Modules import typer at their head, the library and rich's progress
bars inside functions, so that `--help` answers at once.
"""
