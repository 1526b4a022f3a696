"""Online Shuffle Grouping: estimated costs, and who gets which record."""
