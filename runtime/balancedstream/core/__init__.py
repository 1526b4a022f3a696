"""What decides: pure functions of values, shared by the embedded controller and the operator.

Nothing here reads a clock, draws a random number or does I/O; `now_s` and seeds are parameters.
"""
