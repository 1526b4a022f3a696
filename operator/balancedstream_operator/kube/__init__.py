"""The only code that talks to the API server, and what its answers say."""
