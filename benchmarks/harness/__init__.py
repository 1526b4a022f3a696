"""What the benchmarks share.

`benchmark` is the command line and the file of results, `results` reads such files, `sessions` are
Spark's, `rows` are the streams that are measured, `measuring` waits for their batches, with Spark
alone and balanced, and `arms` runs one query after the other in one session.
"""
