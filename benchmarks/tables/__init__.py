"""The tables of the pages in `docs/benchmarks/`, one module a benchmark."""
