"""What the listener's rows say of the tasks and stages of a batch."""
