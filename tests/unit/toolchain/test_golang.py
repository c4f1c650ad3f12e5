"""The generated go.mod, the environment and the command of a build."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from provisioner.toolchain import pins
from provisioner.toolchain.golang import build_command, build_environment, go_mod
from provisioner.toolchain.pins import Kit


def kit(name: str) -> Kit:
    return next(item for item in pins.load().kit if item.name == name)


@pytest.mark.skipif(shutil.which("go") is None, reason="reads the files with Go's own parser")
@pytest.mark.parametrize("name", [item.name for item in pins.load().kit])
def test_go_reads_the_generated_file_as_it_was_meant(name: str, tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text(go_mod(kit(name), "1.26.0"))
    text = subprocess.run(
        ["go", "mod", "edit", "-json"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    parsed = json.loads(text)
    wanted = kit(name)
    assert parsed["Module"]["Path"] == f"provisioner/toolchain/{name}"
    assert parsed["Go"] == "1.26.0"
    assert parsed["Require"] == [{"Path": wanted.module, "Version": wanted.module_version or wanted.version}]
    replaced = {item["Old"]["Path"]: item["New"] for item in parsed["Replace"] or []}
    expected = wanted.replace
    assert set(replaced) == set(expected.modules if expected else ())
    for path, new in replaced.items():
        assert expected is not None
        assert new == {"Path": path, "Version": expected.version}


def test_the_users_proxies_stay_and_what_changes_the_result_does_not() -> None:
    base = {
        "GOPROXY": "https://proxy.example",
        "HTTPS_PROXY": "http://gate:3128",
        "GONOSUMDB": "corp.example",
        "GOFLAGS": "-mod=vendor -tags=broken",
        "GOTOOLCHAIN": "go1.99",
        "GOWORK": "/home/user/go.work",
        "GOROOT": "/opt/old-go",
        "GOOS": "windows",
        "CGO_ENABLED": "1",
        "GOCACHE": "/home/user/.cache/go-build",
    }
    made = build_environment(base, Path("/build"), Path("/build/stage/tmp"))
    assert {key: made[key] for key in ("GOPROXY", "HTTPS_PROXY", "GONOSUMDB")} == {
        key: base[key] for key in ("GOPROXY", "HTTPS_PROXY", "GONOSUMDB")
    }
    assert made["GOTOOLCHAIN"] == "local"
    assert made["GOWORK"] == "off"
    assert made["CGO_ENABLED"] == "0"
    assert "-mod" not in made["GOFLAGS"]
    assert made["GOFLAGS"], "an empty value would let `go env -w` of the user through"
    assert not {"GOROOT", "GOOS"} & set(made)
    for key in ("GOCACHE", "GOMODCACHE", "GOPATH", "GOTMPDIR"):
        assert made[key].startswith("/build/")


@pytest.mark.skipif(shutil.which("go") is None, reason="asks Go itself")
def test_go_takes_these_settings_over_the_users_own_file(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("GOFLAGS=-mod=vendor\nGOTOOLCHAIN=go1.99.0\nGOPROXY=https://proxy.example\n")
    base = {**os.environ, "GOENV": str(tmp_path / "env")}
    base.pop("GOPROXY", None)
    made = build_environment(base, tmp_path, tmp_path)
    done = subprocess.run(
        ["go", "env", "-json", "GOFLAGS", "GOTOOLCHAIN", "GOPROXY", "GOWORK"],
        env=made,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == {
        "GOFLAGS": "-buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOPROXY": "https://proxy.example",
        "GOWORK": "off",
    }


def test_binaries_are_stripped_and_stamped() -> None:
    pin = pins.load().find("kubelet")
    command = build_command(Path("/go"), kit("kubernetes"), pin, Path("/stage/kubelet"))
    link = command[command.index("-ldflags") + 1]
    assert link.startswith("-s -w ")
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in link
    assert "-trimpath" in command
    assert command[-3:] == ["-o", "/stage/kubelet", "k8s.io/kubernetes/cmd/kubelet"]
