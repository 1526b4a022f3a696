"""The BalancedStream resource: its definition, spec, status and annotations."""
