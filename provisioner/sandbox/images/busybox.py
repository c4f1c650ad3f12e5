"""The images that every sandbox has: busybox for pods, and the one that holds a pod's namespaces.

Both are made of the machine's static busybox; there is no registry to pull
them from.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from provisioner.errors import PermanentError
from provisioner.sandbox.images.archive import ImageConfig, write_archive
from provisioner.sandbox.images.layer import Layer, Store, Tree, image_cache

BUSYBOX_IMAGE = "localhost/busybox:sandbox"

# As a pod's first process it reaps what its containers leave behind, and ends when it is told to.
_PAUSE = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait; done"


def base_files(tree: Tree) -> None:
    """Add what any program expects to find: users, name service order, a place for temporary files."""
    tree.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
    tree.text("/etc/group", "root:x:0:\nnogroup:x:65534:\n")
    tree.text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    tree.folder("/root", 0o700)
    for path in ("/tmp", "/var/tmp"):  # noqa: S108 - folders in an image
        tree.folder(path, 0o1777)
    tree.link("/var/run", "/run")
    tree.folder("/run")


def busybox_layer(busybox: Path, store: Store) -> Layer:
    """The layer with busybox and a link for each of its tools.

    Args:
        busybox: The program; must be static.
        store: Where layers are kept.

    Raises:
        PermanentError: It needs a dynamic loader, which the image does not have.
    """
    content = busybox.read_bytes()
    if content[:4] != b"\x7fELF" or b"/ld-linux" in content[:4096] or b"/ld-musl" in content[:4096]:
        raise PermanentError(
            f"{busybox} is not a static program, so it cannot run in an image by itself",
            reason="NotStatic",
            hint="install the package busybox-static",
        )
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    tree = Tree()
    base_files(tree)
    for tool in listed.stdout.split():
        tree.link(f"/bin/{tool}", "/bin/busybox")
    tree.file("/bin/busybox", busybox)
    return store.pack(tree)


def builtin_archives(busybox: Path, pause_image: str) -> dict[Path, str]:
    """The images that a sandbox starts with: archive -> the image's name.

    Args:
        busybox: The static program.
        pause_image: The name that containerd is configured with.
    """
    store = Store(image_cache())
    layers = [busybox_layer(busybox, store)]
    starts = {pause_image: ImageConfig(("/bin/sh", "-c", _PAUSE)), BUSYBOX_IMAGE: ImageConfig(("/bin/sh",))}
    return {write_archive(name, layers, config, store, image_cache()): name for name, config in starts.items()}
