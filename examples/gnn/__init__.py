"""Train a graph neural network on a graph that lives, shard by shard, in a data service."""
