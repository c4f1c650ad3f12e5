"""The demonstration: the whole path on a real cluster, called as Flyte calls it, with nothing faked.

Every step checks what it claims, and the first thing that is wrong ends the
demonstration with an error.
"""
