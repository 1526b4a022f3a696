"""What the status says of a pass, one file a topic."""
