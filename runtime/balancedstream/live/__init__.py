"""What a person sees while a stream runs: a live view on a terminal, one line a decision elsewhere.

Both are fed with the records that also go into the history, from any thread. A view is a spectator:
when its terminal or pipe is gone it falls silent, and the stream runs on.
"""
