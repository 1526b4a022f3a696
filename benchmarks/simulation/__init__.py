"""A stream in virtual time: the driver's real code on a model of Spark's micro-batches."""
