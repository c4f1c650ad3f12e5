"""What a child process keeps in mind of its parent, and that it ends with nothing to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from provisioner.control.reaper import services_left
from provisioner.control.request import ServiceRequest
from provisioner.identity import for_name
from provisioner.spec import DataServiceSpec, Port


def request(name: str) -> ServiceRequest:
    spec = DataServiceSpec(image="image", ports=(Port(name="main", port=1),))
    return ServiceRequest(for_name("p", "d", namespace="ns", name=name), spec, 5.0)


def test_what_was_owned_and_not_forgotten_is_left() -> None:
    first, second = request("first"), request("second")
    lines = [{"own": first.document()}, {"own": second.document()}, {"forget": first.stack}, {"own": second.document()}]
    assert services_left(json.dumps(line) + "\n" for line in lines) == [second]


def test_the_child_of_a_parent_without_services_just_ends() -> None:
    program = (
        "from provisioner.control.reaper import Reaper\n"
        "reaper = Reaper.start(before_end=lambda: print('stopped', flush=True))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout, result.stderr) == (0, "stopped\n", "")


def test_a_child_that_cannot_remove_says_why(tmp_path) -> None:
    program = (
        "import json, sys\n"
        "from provisioner.control.reaper import Reaper\n"
        "from provisioner.control.request import ServiceRequest\n"
        "reaper = Reaper.start(before_end=lambda: None)\n"
        "reaper.own(ServiceRequest.from_document(json.loads(sys.argv[1])))\n"
    )
    environment = os.environ | {
        "PROVISIONER_KUBECONFIG": str(tmp_path / "none"),
        "PROVISIONER_BACKEND": "no-such-scheme://x",
        "PROVISIONER_OPERATION_TIMEOUT": "3",
    }
    command = [sys.executable, "-c", program, json.dumps(request("graph").document())]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert "removing 1 data service" in result.stderr
    assert f"data service {request('graph').stack}: still there; the backend is no-such-scheme://x" in result.stderr
    assert "Traceback" not in result.stderr
