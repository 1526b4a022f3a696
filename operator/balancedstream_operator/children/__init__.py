"""Builds the objects of a stream from its spec, and applies them."""
