"""Ask every agent, again and again, and put one new table in the old one's place.

A round costs one small call per agent, whatever the number of requests. All
agents are asked at once, each within its own time, so that a round lasts as
long as its slowest agent and a dead one delays nobody by more than that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import structlog

from provisioner.errors import TransientError
from provisioner.registry.ask import ask
from provisioner.registry.calls import Metadata
from provisioner.registry.changes import changes_between
from provisioner.registry.channels import ChannelPool
from provisioner.registry.config import DEFAULT_POLL_INTERVAL, Deployment, RegistryConfig
from provisioner.registry.metrics import Metrics
from provisioner.registry.source import ConfigSource
from provisioner.registry.table import EMPTY, Observation, RoutingTable, build_table

log = structlog.get_logger(__name__)

STALE_AFTER = 600.0
"""Seconds for which an agent that does not answer keeps its entries."""
_LOOK_AT_FILES = 1.0


class Discovery(Protocol):
    """Finds agents that nobody wrote down."""

    async def find(self) -> tuple[Deployment, ...]:
        """The agents there are now.

        Raises:
            TransientError: They cannot be looked up at present.
        """


class Watch:
    """Keeps the routing table up to date.

    Args:
        source: The configuration.
        pool: The channels.
        metrics: What is counted.
        stale_after: Seconds; see `STALE_AFTER`.
        poll_interval: Seconds between the starts of two rounds; the
            configuration's, or 10, when None.
        discovery: Finds further agents.
        metadata: Sent along with each question.
        clock: Seconds; must never go back.
    """

    def __init__(
        self,
        source: ConfigSource,
        pool: ChannelPool,
        metrics: Metrics,
        *,
        stale_after: float = STALE_AFTER,
        poll_interval: float | None = None,
        discovery: Discovery | None = None,
        metadata: Metadata = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self.table: RoutingTable = EMPTY
        self._pool = pool
        self._metrics = metrics
        self._stale_after = stale_after
        self._poll_interval = poll_interval
        self._discovery = discovery
        self._metadata = metadata
        self._clock = clock
        self._observations: dict[str, Observation] = {}
        self._discovered: tuple[Deployment, ...] = ()
        self._discovery_error = ""
        self._wake = asyncio.Event()
        self._new_table = asyncio.Condition()
        metrics.follow(lambda: self.table)

    @property
    def poll_interval(self) -> float:
        """Seconds between the starts of two rounds, as it holds now."""
        return self._poll_interval or self.source.config.poll_interval or DEFAULT_POLL_INTERVAL

    async def round(self) -> RoutingTable:
        """Ask every agent once and build the table anew.

        Returns:
            The new table, which is `table` from now on.
        """
        with self._metrics.round_seconds.time():
            config = await self._with_discovered(self.source.config)
            deployments = config.deployments
            self._pool.refresh(deployments)
            interval = self.poll_interval
            seen = await asyncio.gather(*(self._ask(deployment, interval) for deployment in deployments))
            self._observations = {
                deployment.id: observation for deployment, observation in zip(deployments, seen, strict=True)
            }
            before = self.table
            self.table = build_table(config, self._observations, now=self._clock(), stale_after=self._stale_after)
        self._metrics.rounds.labels("ok").inc()
        for name, status in self.table.agents.items():
            if status.observation.error:
                self._metrics.silences.labels(name).inc()
        for change in changes_between(before, self.table):
            log.log(change.level, change.message, **change.values)
        async with self._new_table:
            self._new_table.notify_all()
        return self.table

    async def _ask(self, deployment: Deployment, interval: float) -> Observation:
        return await ask(
            deployment,
            self._pool,
            self._observations.get(deployment.id, Observation()),
            limit=deployment.list_timeout(interval),
            now=self._clock(),
            metadata=self._metadata,
        )

    async def _with_discovered(self, config: RegistryConfig) -> RegistryConfig:
        if self._discovery is None:
            return config
        try:
            self._discovered = await self._discovery.find()
        except TransientError as error:
            problem = str(error)
        else:
            problem = ""
        self._metrics.discovery_up = not problem
        if problem and problem != self._discovery_error:
            log.error("discovery failed, the agents found before are kept", problem=problem)
        self._discovery_error = problem
        return config.with_discovered(self._discovered)

    def reload(self) -> None:
        """Read the configuration again now (SIGHUP) and start a round."""
        self.source.reload(self._metrics, force=True)
        self._wake.set()

    async def run(self) -> None:
        """Do rounds until cancelled, the first after one interval or when the configuration changes."""
        files = asyncio.create_task(self._watch_files())
        started = self._clock()
        try:
            while True:
                left = self.poll_interval - (self._clock() - started)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), max(0.0, left))
                self._wake.clear()
                started = self._clock()
                try:
                    await self.round()
                except Exception:
                    # A fault in one round must not end the watch: the table stays, and its age shows.
                    self._metrics.rounds.labels("failed").inc()
                    log.exception("round failed, the table stays as it is")
        finally:
            files.cancel()

    async def _watch_files(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOK_AT_FILES, self.poll_interval))
            if self.source.reload(self._metrics):
                self._wake.set()

    async def next_table(self) -> RoutingTable:
        """Wait for the end of a round and return its table."""
        async with self._new_table:
            await self._new_table.wait()
        return self.table
