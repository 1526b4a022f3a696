"""What happened in a run, for whoever looks on: history, ports of spectators, wording."""
