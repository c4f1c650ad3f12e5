"""The pins agree with each other, with the package's requirements and with what the binaries print."""

import re
from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from provisioner.errors import UsageError
from provisioner.toolchain import pins
from provisioner.toolchain.pins import DEFAULT_GROUPS, Group, Kit, Launcher, Package, Pins, numbers

ENGINE = {"pulumi", "pulumi-resource-kubernetes", "pulumi-language-python"}
SANDBOX = {
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubemark",
    "coredns",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "bridge",
    "host-local",
    "loopback",
    "busybox",
}

# As printed by the real ones.
PRINTED = {
    "pulumi": ("v3.274.1\n", "3.274.1"),
    "kube-apiserver": ("Kubernetes v1.36.3\n", "1.36.3"),
    "kubelet": ("Kubernetes v1.36.3\n", "1.36.3"),
    "etcd": ("etcd Version: 3.7.3\nGit SHA: Not provided\nGo Version: go1.26.8\n", "3.7.3"),
    "coredns": ("CoreDNS-1.15.0\nlinux/amd64, go1.26.8, \n", "1.15.0"),
    "containerd": ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n", "1.6.20~ds1"),
    "containerd-shim-runc-v2": ("containerd-shim-runc-v2:\n  Version:  1.6.20~ds1\n  Revision: x\n", "1.6.20~ds1"),
    "ctr": ("ctr github.com/containerd/containerd 1.6.20~ds1\n", "1.6.20~ds1"),
    "runc": ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n", "1.1.5+ds1"),
    "bridge": (
        "CNI bridge plugin version unknown\nCNI protocol versions supported: 0.1.0, 0.4.0, 1.0.0\n",
        "1.0.0",
    ),
    "busybox": ("BusyBox v1.35.0 (Debian 1:1.35.0-4+deb12u1+b1) multi-call binary.\n", "1.35.0"),
}


@pytest.fixture
def all_pins() -> Pins:
    return pins.load()


def test_every_group_holds_what_it_is_for(all_pins: Pins) -> None:
    assert {pin.name for pin in all_pins.select([Group.ENGINE])} == ENGINE
    assert {pin.name for pin in all_pins.select([Group.SANDBOX])} == SANDBOX
    assert {pin.name for pin in all_pins.select([Group.TRAINING])} == {"training-operator"}
    assert {pin.name for pin in all_pins.select(DEFAULT_GROUPS)} == ENGINE | SANDBOX


def test_no_two_binaries_share_a_name_or_a_place(all_pins: Pins) -> None:
    every = all_pins.every()
    assert len({pin.name for pin in every}) == len(every)
    assert len({pin.key for pin in every}) == len(every)


def test_the_provider_is_the_one_that_pip_asks_for(all_pins: Pins) -> None:
    wanted = [item for item in metadata.requires("data-service-provisioner") or [] if item.startswith("pulumi-k")]
    pin = all_pins.find("pulumi-resource-kubernetes")
    assert wanted == [f"pulumi-kubernetes=={pin.version}"]
    assert metadata.version("pulumi-kubernetes") == pin.version


def test_a_version_stands_in_each_place_that_needs_it(all_pins: Pins) -> None:
    kits = {kit.name: kit for kit in all_pins.kit}
    provider = kits["pulumi-resource-kubernetes"]
    assert provider.home.name == f"resource-kubernetes-{provider.version}"
    assert f'"{provider.version.removeprefix("v")}"' in provider.main
    assert any(item.endswith(f"={kits['pulumi'].version}") for item in kits["pulumi"].link)
    kubernetes = kits["kubernetes"]
    major, minor, patch = numbers(kubernetes.version)
    assert [item.rpartition("=")[2] for item in kubernetes.link] == [kubernetes.version, str(major), str(minor)]
    assert kubernetes.replace is not None
    assert kubernetes.replace.version == f"v0.{minor}.{patch}"


def test_the_wheel_satisfies_the_least_go(all_pins: Pins) -> None:
    assert numbers(all_pins.go.wheel.partition("==")[2]) >= numbers(all_pins.go.minimum)


def test_kubernetes_takes_its_33_staging_modules_at_one_version(all_pins: Pins) -> None:
    replaced = next(kit for kit in all_pins.kit if kit.name == "kubernetes").replace
    assert replaced is not None
    assert len(replaced.modules) == len(set(replaced.modules)) == 33


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_the_version_is_found_in_what_a_binary_prints(all_pins: Pins, name: str) -> None:
    text, version = PRINTED[name]
    pin = all_pins.find(name)
    found = re.search(pin.probe.pattern, text, re.MULTILINE)
    assert found is not None
    assert found[1] == version
    assert pin.accepts(found[1])


def test_every_binary_has_one_way_to_tell_its_version(all_pins: Pins) -> None:
    for pin in all_pins.every():
        assert sum((bool(pin.probe.pattern), bool(pin.probe.service), pin.probe.module)) == 1, pin.name


def test_only_binaries_of_the_system_have_no_place_in_the_cache(all_pins: Pins) -> None:
    for pin in all_pins.every():
        assert (pin.home is None) == isinstance(pin.origin, Package)
        assert pin.exact == isinstance(pin.origin, Kit | Launcher)


def test_another_patch_release_is_not_the_pinned_one(all_pins: Pins) -> None:
    assert all_pins.find("etcd").accepts("v3.7.3")
    assert not all_pins.find("etcd").accepts("3.7.4")
    assert not all_pins.find("kubelet").accepts("1.36.3+k3s1")


@given(st.tuples(*[st.integers(0, 99)] * 3))
def test_a_debian_binary_may_be_newer_but_not_older(version: tuple[int, int, int]) -> None:
    pin = pins.load().find("runc")
    assert pin.accepts(".".join(map(str, version))) == (version >= (1, 1, 0))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no binary 'etdc'") as raised:
        pins.load().find("etdc")
    assert "etcd" in raised.value.hint


def test_a_misspelt_key_in_the_pins_is_an_error(all_pins: Pins) -> None:
    with pytest.raises(ValidationError):
        Pins.model_validate({**all_pins.model_dump(), "pakage": []})
