"""Stacks in a bucket: made there by the engine, found there and destroyed by the janitor."""

from __future__ import annotations

from typing import Any

import bucket
import pytest

from provisioner.engine import Engine
from provisioner.engine.origin import backend_id
from provisioner.identity import Origin
from provisioner.janitor.outcome import Completion
from provisioner.resources.component import program
from provisioner.sealing import Sealer


def test_an_orphan_in_a_bucket_goes_and_leaves_nothing(
    lab: Any, flyte: Any, janitor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.credentials().items():
        monkeypatch.setenv(name, value)
    with bucket.served() as store:
        settings = lab.settings.model_copy(update={"backend": store.url})
        engine = Engine(settings)
        origin = Origin(lab.origin.cluster, backend_id(settings))
        flyte.start("ends")
        who = lab.identity("orphan", "ends")
        engine.stack(who.stack).up(program(who, lab.spec(), Sealer.of(settings), origin))
        assert [name for name in store.names() if name.endswith(f"/{who.stack}.json")]
        flyte.end("ends")

        def sweep(hours: float) -> Any:
            return janitor(hours, settings=settings).sweep()

        assert sweep(1).completion is Completion.COMPLETE
        assert lab.notice(who)
        assert store.names("state/.data-service-provisioner/janitor/")
        assert sweep(2).completion is Completion.COMPLETE
        assert lab.uids(who) == {}
        assert [name for name in store.names() if who.stack in name] == []
