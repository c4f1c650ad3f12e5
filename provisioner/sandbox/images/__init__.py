"""Images without a registry: built from what is on this machine, packed reproducibly, read carefully."""
