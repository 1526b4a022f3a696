"""NEXMark: the events of an online auction, queries over their streams, and the right answers.

`events` draws persons, auctions and bids from a seed, `files` writes them, `streams` reads them as
Spark does, `queries` are the streaming queries, `processors` what some of them run in Python, and
`answers` computes the same answers with another engine. No code is taken from elsewhere.
"""
