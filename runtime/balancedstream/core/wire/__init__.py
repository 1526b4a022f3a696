"""What operator and driver exchange, as text that is read strictly."""
