"""The Kubernetes operator: runs BalancedStreams, and keeps them balanced and right-sized.

`main` gets the resources from `following`. For each of them a `Supervisor` (`supervising`) makes
one pass after the other: it creates the objects that a stream consists of, asks Prometheus what the
stream's driver measured, lets `balancedstream.core` decide, and writes the decision as a plan for
the driver and as conditions, events and figures for the user (`reporting`).
"""
