#!/bin/sh
# What the entry point of PostgreSQL's image does: make a database cluster on the first start, run what is mounted in
# docker-entrypoint-initdb.d on a socket that nobody else can reach, then become the server.
set -eu
PGDATA=/var/lib/postgresql/18/docker
export PGDATA
socket=/var/lib/postgresql/socket
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    mkdir -p "$PGDATA" && mkdir -m 700 "$socket"
    initdb --username postgres --auth-host scram-sha-256 --auth-local trust --encoding UTF8 --locale C.UTF-8 \
        --pwfile "$POSTGRES_PASSWORD_FILE" >/dev/null
    pg_ctl start --silent --wait --options "-c listen_addresses= -k $socket"
    psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --host "$socket" --username postgres \
        --file /srv/docker-entrypoint-initdb.d/databases.sql
    pg_ctl stop --silent --wait --mode fast
fi
# No fsync: the power stays on while a cluster is tried out, and a killed server loses nothing by it.
exec "$@" -k "$socket" -c fsync=off -c full_page_writes=off
