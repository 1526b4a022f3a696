"""The Kubernetes operator: observes Prometheus, asks the core, realizes plans.

Not built yet; the embedded home is `balancedstream.loop.controller`.
"""
