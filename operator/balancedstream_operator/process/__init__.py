"""What the process of the operator runs, beside the passes."""
