"""The command line: one module per group of verbs; prints and asks, never decides."""
