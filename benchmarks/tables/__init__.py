"""The tables of `docs/performance.md`, one module a benchmark."""
