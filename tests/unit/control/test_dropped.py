"""What a cluster left out of what was applied."""

from typing import Any

import pytest

from provisioner.control.dropped import dropped
from provisioner.spec import parse_spec


def spec(**fields: Any) -> Any:
    return parse_spec({"image": "a", "ports": [{"name": "grpc", "port": 9000}], **fields})


def live(**rolling: Any) -> Any:
    return {"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}}


@pytest.mark.parametrize(
    ("wanted", "there", "told"),
    [
        (spec(), live(), False),
        (spec(maxUnavailable=2), live(maxUnavailable=2), False),
        (spec(maxUnavailable=2), live(partition=0), True),
        (spec(maxUnavailable="50%"), {}, True),
        (spec(maxUnavailable=2), None, False),
    ],
)
def test_a_field_that_the_cluster_ignores_is_told(wanted: Any, there: Any, told: bool):
    assert bool(dropped(wanted, there)) is told
