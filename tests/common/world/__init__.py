"""A world that fails, in virtual time: what operator and driver are simulated in."""
