"""Decides which key goes to which state partition, and finds hot keys."""
