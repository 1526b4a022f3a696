"""What balancing would bring a job, from the event logs that Spark has written of it."""
