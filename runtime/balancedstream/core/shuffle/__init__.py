"""Online Shuffle Grouping: estimates the costs of records, and assigns records to instances."""
