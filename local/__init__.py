"""The platform on one machine, without other services: Airflow's four components on loopback, local Spark, SQLite.

python -m local.up       start it and print its addresses
python -m local.down     stop all of it
python -m local.demo     start a platform, copy and expire segments of the bundled log dirs of real brokers, stop it
"""
