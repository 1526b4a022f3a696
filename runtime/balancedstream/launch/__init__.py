"""Brings the loop to an application: in its process, from another one, or on Kubernetes."""
