# Formats the log folder on the first start, then runs the broker. Both read the same properties.
set -euo pipefail
# A test's broker shares two cores with Spark: little heap, and no second compiler.
java_options=(-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn)
java "${java_options[@]}" -cp '/opt/kafka/*' kafka.tools.StorageTool format \
  --ignore-formatted --cluster-id balancedstream-e2e-000 --config /etc/kafka/server.properties
exec java "${java_options[@]}" -cp '/opt/kafka/*' kafka.Kafka /etc/kafka/server.properties
