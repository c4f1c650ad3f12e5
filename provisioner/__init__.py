"""Ephemeral data services on Kubernetes: each one a Pulumi stack, driven from Flyte."""

__version__ = "0.1.0"
