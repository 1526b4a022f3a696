"""From Prometheus' series to a measurement."""
