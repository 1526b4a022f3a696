"""Another number of state partitions: its steps, and the Jobs that carry them out."""
