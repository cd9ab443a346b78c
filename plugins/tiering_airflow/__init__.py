"""Airflow's side of the platform: thin operators, a sensor, a trigger and pools over the library.

No module here does anything when it is imported, and none imports the library's heavy parts: Airflow reads DAG files
and plugins in every one of its processes. All calls into the library go through `hook.TieringHook`.
"""
