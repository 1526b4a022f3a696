"""How the driver of a stream and its executors are, and why they do not run."""
