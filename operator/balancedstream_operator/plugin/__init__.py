"""`kubectl bst`: what is wrong with a stream, what is being done, and what to do."""
