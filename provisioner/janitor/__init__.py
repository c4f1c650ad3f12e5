"""The janitor: what lost its owner goes, what is in use stays."""
