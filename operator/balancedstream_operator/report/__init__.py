"""Reports a pass in the status, one file a topic."""
