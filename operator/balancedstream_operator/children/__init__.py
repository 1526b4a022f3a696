"""The objects of a stream: built from its spec, and kept as they are wanted."""
