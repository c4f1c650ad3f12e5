"""The heart: ensure, observe and remove services, at most one operation per stack at a time."""
