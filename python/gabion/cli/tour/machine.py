"""What the report says about this computer, and how much memory is to be had."""

import contextlib
import os
import platform
import resource
import sys
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def describe() -> dict[str, str]:
    """Processor, memory, system and versions, as label → text."""
    import gabion  # late: measuring processes hold only what they need

    build = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", free-threaded"
    return {
        "Processor": f"{_field('/proc/cpuinfo', 'model name') or platform.machine()}, {os.cpu_count()} cores",
        "Memory": f"{_bytes_of('MemTotal') / 2**30:.1f} GiB",
        "System": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}{build}",
        "gabion": gabion.__version__,
    }


def available_bytes() -> int:
    """Bytes that this process may still take: the system's estimate, or the control group's rest if that is less."""
    free = _bytes_of("MemAvailable")
    try:
        limit = int((CGROUP / "memory.max").read_text())
        free = min(free, limit - int((CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no control group, or one without a limit ("max")
    return max(free, 0)


def resident_bytes() -> int:
    """The resident set size of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def forget_peak() -> None:
    """Let the peak begin anew with what is resident now, where the system can do that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_resident_bytes() -> int:
    """The most that this process had resident since forget_peak(), or since its start."""
    told = _field("/proc/self/status", "VmHWM")
    return int(told.split()[0]) * 1024 if told else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _bytes_of(name: str) -> int:
    return int(_field("/proc/meminfo", name).split()[0]) * 1024


def _field(path: str, name: str) -> str:
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""
