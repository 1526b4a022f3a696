#!/bin/bash
# Where spark.decommission.enabled is true, Kubernetes runs this before it stops an executor's
# container (Spark sets it as the preStop hook). SIGPWR tells the executor to take no more tasks, to
# hand its blocks on and to end by itself; until then the hook holds back Kubernetes' own SIGTERM.
# How long it may is the pod's terminationGracePeriodSeconds.
set -u

say() { # to the container's log: what a hook prints goes nowhere
  echo "decommissioning: $1" >/proc/1/fd/1 2>/dev/null || true
}

# There is no `ps` in the image. The name is asked for, too: tini's command line holds Java's.
executor=
for process in /proc/[0-9]*; do
  if [ "$(cat "$process/comm" 2>/dev/null)" = java ] \
    && tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -q KubernetesExecutorBackend; then
    executor=${process#/proc/}
  fi
done

if [ -z "$executor" ]; then
  say "no executor runs here"
  exit 0
fi
say "process $executor is asked to finish"
kill -s PWR "$executor"
while [ -d "/proc/$executor" ]; do
  sleep 0.5
done
say "process $executor has ended"
