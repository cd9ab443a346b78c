#!/bin/sh
# versitygw takes its root account from its environment alone: the files become variables of this one process.
set -eu
ROOT_ACCESS_KEY=$(cat /run/secrets/s3_access_key)
ROOT_SECRET_KEY=$(cat /run/secrets/s3_secret_key)
export ROOT_ACCESS_KEY ROOT_SECRET_KEY
exec versitygw "$@"
