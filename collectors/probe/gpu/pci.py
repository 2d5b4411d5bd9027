"""How many NVIDIA GPUs should be here, without asking the driver: from /proc and /sys."""

import os

from collectors.probe.paths import listed, read

DRIVER_GPUS = "proc/driver/nvidia/gpus"
PCI_DEVICES = "sys/bus/pci/devices"
GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers; the NVSwitches of the same vendor are bridges."""

SHARES = ("slurm", "docker", "kubepods", "containerd", "podman", "lxc")
"""In a cgroup of these a process may see some of the node's GPUs only, and that is no fault."""

PASSED_THROUGH = ("vfio", "pci-stub", "pciback")
"""In the names of drivers that keep a device for a virtual machine: it is not the host's then."""


def on_the_bus(root: str = "/") -> int:
    """The NVIDIA GPUs that Linux sees, or that the driver found when it was loaded, whichever are more."""
    devices = os.path.join(root, PCI_DEVICES)
    seen = 0
    for name in listed(devices):
        folder = os.path.join(devices, name)
        if read(os.path.join(folder, "vendor")).strip() == "0x10de" and is_own(folder):
            seen += read(os.path.join(folder, "class")).startswith(GPU_CLASSES)
    return max(seen, len(listed(os.path.join(root, DRIVER_GPUS))))


def is_own(folder: str) -> bool:
    """Whether a device is the host's: not a virtual machine's, and no virtual part of another."""
    try:
        driver = os.path.basename(os.readlink(os.path.join(folder, "driver")))
    except OSError:
        driver = ""
    return not any(word in driver for word in PASSED_THROUGH) and not os.path.lexists(os.path.join(folder, "physfn"))


def has_all(root: str = "/") -> bool:
    """Whether this process may see all GPUs of the node: it is not in a container or in a job's cgroup."""
    return not any(word in read(os.path.join(root, "proc/self/cgroup")) for word in SHARES)


def driver_version(root: str = "/") -> "str | None":
    """The loaded kernel module's version: known even where NVML does not answer."""
    words = read(os.path.join(root, "proc/driver/nvidia/version")).partition("\n")[0].split()
    return next((word for word in words if word[:1].isdigit() and "." in word), None)
