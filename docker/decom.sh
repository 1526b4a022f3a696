#!/bin/bash
# Where spark.decommission.enabled is true, Kubernetes runs this before it stops an executor's
# container (Spark sets it as the preStop hook). SIGPWR tells the executor to accept no more tasks, to
# migrate its blocks and to exit; until then the hook delays the SIGTERM of Kubernetes, for at most
# the pod's terminationGracePeriodSeconds.
set -u

say() { # to the container's log, because Kubernetes discards the output of hooks
  echo "decommissioning: $1" >/proc/1/fd/1 2>/dev/null || true
}

# The image has no `ps`. The name must be java, because tini's command line contains Java's.
executor=
for process in /proc/[0-9]*; do
  if [ "$(cat "$process/comm" 2>/dev/null)" = java ] \
    && tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -q KubernetesExecutorBackend; then
    executor=${process#/proc/}
  fi
done

if [ -z "$executor" ]; then
  say "no executor is running"
  exit 0
fi
say "asking process $executor to finish"
kill -s PWR "$executor"
while [ -d "/proc/$executor" ]; do
  sleep 0.5
done
say "process $executor has exited"
