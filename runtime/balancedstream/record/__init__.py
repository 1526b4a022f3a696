"""What happened in a run: its history, the ports of its spectators, and how figures are worded."""
