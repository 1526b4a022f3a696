"""What operator and driver exchange: plans and answers, and the names of series."""
