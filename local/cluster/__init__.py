"""The production shape without containers: the services of docker-compose.yaml as plain processes on loopback.

python -m local.cluster.up       start it and print its addresses
python -m local.cluster.down     stop all of it
python -m local.cluster.demo     copy, check, size, expire and audit on a cluster of its own, compare bytes, stop it
"""
