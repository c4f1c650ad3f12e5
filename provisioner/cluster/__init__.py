"""What is really there: the Kubernetes side, read through one shared watch and explained by pure functions."""
