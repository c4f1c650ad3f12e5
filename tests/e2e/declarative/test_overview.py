"""`provisioner status` without a name: all services at once, and their changes as they come."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading


def test_all_services_are_counted_and_those_not_ready_named(run, kube, apply):
    empty = run("status", "-n", kube.namespace).ok()
    assert empty.out == "no services\n"
    apply(replicas=2).ok()
    assert run("status", "-n", kube.namespace).ok().out == "1 service: 1 Ready; 2/2 replicas ready\n"
    run("apply", "--no-wait", "-f", "-", stdin=LATE).ok()
    late = run("status", "-n", kube.namespace)
    assert late.code == 3
    first, _, heading, row = late.out.splitlines()
    assert first == "2 services: 1 Starting, 1 Ready; 2/3 replicas ready"
    assert heading.split() == ["NAME", "NAMESPACE", "READY", "STATUS", "AGE"]
    assert row.split()[:4] == ["late", kube.namespace, "0/1", "Starting"]
    known = json.loads(run("status", "-n", kube.namespace, "-o", "json").out)
    assert (known["services"], known["phases"]) == (2, {"Starting": 1, "Ready": 1})


def test_each_change_is_a_line(run, kube, apply):
    apply(replicas=1).ok()
    words = [sys.executable, "-m", "provisioner", "status", "--watch", "-n", kube.namespace, "-o", "json"]
    watching = subprocess.Popen(words, env=dict(os.environ), stdout=subprocess.PIPE, text=True)
    lines: queue.Queue[str] = queue.Queue()
    try:
        threading.Thread(target=lambda: [lines.put(line) for line in watching.stdout], daemon=True).start()

        def line_with(**values):
            while True:
                known = json.loads(lines.get(timeout=60))
                if {key: known[key] for key in values} == values:
                    return

        line_with(ready=1, wanted=1, phases={"Ready": 1})
        run("scale", "graph", "--replicas", "2").ok()
        line_with(ready=2, wanted=2, phases={"Ready": 1})
        run("delete", "graph").ok()
        line_with(services=0, unready=[])
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    finally:
        watching.kill()


LATE = """
apiVersion: data-service/v1
metadata: {name: late}
spec: {image: "localhost/nothing:here", ports: [{name: main, port: 9000}], replicas: 1, startDeadline: 10m}
"""
