"""The platform on one machine: Airflow's four components on loopback, Spark in local mode, SQLite, nothing else.

python -m local.up       start it and print its addresses
python -m local.down     stop all of it
python -m local.demo     the main job on the bundled log dirs of real brokers, from start to stop
"""
