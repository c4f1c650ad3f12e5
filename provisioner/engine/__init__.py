"""Pulumi, tuned: a stack handle with few processes, a reader of its state, and recovery after a kill."""

from provisioner.engine.cancellation import Cancellation
from provisioner.engine.changes import Change, ChangeSummary, UpResult
from provisioner.engine.checkpoint import Checkpoint, Component, PendingOperation, Resource
from provisioner.engine.environment import PROJECT
from provisioner.engine.stack import Engine, Stack
from provisioner.engine.state import Lock, StackEntry, StateReader

__all__ = [
    "PROJECT",
    "Cancellation",
    "Change",
    "ChangeSummary",
    "Checkpoint",
    "Component",
    "Engine",
    "Lock",
    "PendingOperation",
    "Resource",
    "Stack",
    "StackEntry",
    "StateReader",
    "UpResult",
]
