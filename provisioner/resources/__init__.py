"""What a data service consists of: manifests as pure functions, and the Pulumi component made of them.

This package imports nothing by itself: `component` loads Pulumi, and who only
compares manifests does without.
"""
