#!/bin/sh
# What the entry point of Kafka's image does: format the log dir on the first start, then become the broker.
# Arguments: the cluster's id, server.properties, and the java command with its options and class path.
set -eu
cluster_id=$1 properties=$2
shift 2
if [ ! -e /var/lib/kafka/data/meta.properties ]; then
    "$@" kafka.tools.StorageTool format --cluster-id "$cluster_id" --config "$properties"
fi
exec "$@" kafka.Kafka "$properties"
