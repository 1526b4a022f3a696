"""One pass over a stream: observe, decide, realize."""
