#!/bin/bash
# The entrypoint of the spark image. Spark's driver creates executor pods with the single argument
# `executor` and passes everything else in SPARK_* variables. Its cluster mode, and so operators that
# use it, create driver pods with `driver` and arguments of spark-submit. Any other arguments are a
# command. In any case tini becomes process 1: it forwards signals and reaps child processes.
set -euo pipefail

# Hadoop's login fails for a user without a name ("invalid null input: name"), and a cluster can run
# the container under any user id. /etc/passwd is read-only in a pod, so a copy names the user.
if ! getent passwd "$(id -u)" >/dev/null; then
  { cat /etc/passwd; echo "spark:x:$(id -u):$(id -g)::$HOME:/usr/sbin/nologin"; } >/tmp/.passwd
  export NSS_WRAPPER_PASSWD=/tmp/.passwd NSS_WRAPPER_GROUP=/etc/group
  export LD_PRELOAD="libnss_wrapper.so${LD_PRELOAD:+:$LD_PRELOAD}"
fi

if [ "${1:-}" = driver ]; then
  shift
  exec /usr/bin/tini -s -- "$SPARK_HOME/bin/spark-submit" \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
    --deploy-mode client "$@"
fi

if [ "${1:-}" != executor ]; then
  exec /usr/bin/tini -s -- "$@"
fi

# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, … in numeric order: a later option overrides an earlier one,
# and 10 comes after 9.
java_options=()
for name in $(compgen -A variable SPARK_JAVA_OPT_ | sort -t_ -k4 -n); do
  java_options+=("${!name}")
done

# With an archive of Spark's classes (archive_classes.py) an executor is ready sooner. Java uses it
# only if the class path begins with the archived jars in their order, so not where the user's classes
# come before Spark's. No jar of Spark's has a file that the settings are looked for by. Mapped where it
# was made to be, most of it stays what all JVMs of a node share; elsewhere, each has 93 MiB of its own.
archive=/opt/spark.jsa
archived=
others="$SPARK_HOME/jars/*"
if [ -r "$archive" ] && [ -z "${SPARK_CLASSPATH:-}" ]; then
  archived=$(<"$archive.classpath")
  java_options=("-XX:SharedArchiveFile=$archive" -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0
    -Xlog:cds=off "${java_options[@]}")
  others=
  for jar in "$SPARK_HOME"/jars/*; do
    case ":$archived:" in *":$jar:"*) ;; *) others="${others:+$others:}$jar" ;; esac
  done
fi

# Settings first, then the user's classes, then Spark's. Unset variables add no entry, because an
# empty one would mean the working directory.
classpath=$archived
for entry in "${SPARK_CONF_DIR:-$SPARK_HOME/conf}" "${HADOOP_CONF_DIR:-}" "${SPARK_CLASSPATH:-}" \
  "$others" "${SPARK_EXTRA_CLASSPATH:-}" "${SPARK_DIST_CLASSPATH:-}"; do
  if [ -n "$entry" ]; then
    classpath="${classpath:+$classpath:}$entry"
  fi
done

exec /usr/bin/tini -s -- "$JAVA_HOME/bin/java" "${java_options[@]}" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classpath" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
