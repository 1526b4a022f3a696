"""What a BalancedStream says: spec, status, annotations, and the definition of the resource."""
