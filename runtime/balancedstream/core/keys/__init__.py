"""Which key is in which state partition, and how hot keys are found."""
