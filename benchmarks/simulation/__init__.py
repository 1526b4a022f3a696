"""A stream in virtual time: the real code of both homes on a model of Spark's micro-batches."""
