"""The number of NVIDIA GPUs that this node should have, from /proc and /sys, without the driver."""

import os

from collectors.probe.paths import listed, read

GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers. NVSwitches of the same vendor are bridges."""

CONTAINERS = ("slurm", "docker", "kubepods", "containerd", "podman", "lxc")
"""In a cgroup of these, a process may see only some of the node's GPUs; that is no fault."""

STEP = "TRAINMON_STEP"
"""The variable that is set in a step of a job that runs only probes. It may see fewer GPUs than the job."""

HIDDEN = "a cgroup hides"
"""In the note of the greeting when NVML shows no GPU, though the node has some."""

PASSTHROUGH = ("vfio", "pci-stub", "pciback")
"""Parts of the names of drivers that reserve a device for a virtual machine."""


def on_the_bus(root: str = "/") -> int:
    """The NVIDIA GPUs that Linux lists, or that the driver found when it was loaded, whichever is more."""
    devices = os.path.join(root, "sys/bus/pci/devices")
    folders = [os.path.join(devices, name) for name in listed(devices)]
    gpus = [
        folder
        for folder in folders
        if read(os.path.join(folder, "vendor")).strip() == "0x10de"
        and is_own(folder)
        and read(os.path.join(folder, "class")).startswith(GPU_CLASSES)
    ]
    return max(len(gpus), len(listed(os.path.join(root, "proc/driver/nvidia/gpus"))))


def is_own(folder: str) -> bool:
    """Whether a device is the host's: not a virtual machine's, and not a virtual function of another device."""
    try:
        driver = os.path.basename(os.readlink(os.path.join(folder, "driver")))
    except OSError:
        driver = ""
    return not any(name in driver for name in PASSTHROUGH) and not os.path.lexists(os.path.join(folder, "physfn"))


def has_all(root: str = "/") -> bool:
    """Whether this process sees all GPUs of the node: it is not in a container or a job's cgroup."""
    return not any(name in read(os.path.join(root, "proc/self/cgroup")) for name in CONTAINERS)


def driver_version(root: str = "/") -> "str | None":
    """The loaded kernel module's version, which is known even if NVML does not answer."""
    first_line = read(os.path.join(root, "proc/driver/nvidia/version")).partition("\n")[0]
    return next((part for part in first_line.split() if part[:1].isdigit() and "." in part), None)
