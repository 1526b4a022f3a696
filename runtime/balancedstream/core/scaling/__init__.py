"""How many executors a stream needs."""
