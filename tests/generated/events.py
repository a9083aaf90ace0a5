"""Events as HTCondor's user log prints them: one function per kind, text without separator.

Shapes are those of real logs of 24.x and 25.x; ``condor_event.cpp`` is the source followed.
``head`` is ``(cluster.proc.subproc) stamp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.generated.places import Place

SCHEDD: Final = (
    "<192.0.2.62:9618?addrs=192.0.2.62-9618&alias=ap40.example.org&noUDP&sock=schedd_11239_d7cd>"
)


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of one attempt of a job: a place, a machine of it, some of its GPUs."""

    place: Place
    host: str
    name: str
    address: str
    gpus: tuple[str, ...]

    @property
    def sinful(self) -> str:
        """The starter's address."""
        return (
            f"<{self.address}:9618?addrs={self.address}-9618&alias={self.host}"
            f"&noUDP&sock=startd_{self.place.sock}>"
        )


def submitted(head: str, node: str | None) -> str:
    named = f"\n    DAG Node: {node}" if node else ""
    return f"000 {head} Job submitted from host: {SCHEDD}{named}"


def queued(head: str, direction: str) -> str:
    return f"040 {head} Entered queue to transfer {direction} files"


def transfer_started(head: str, direction: str, slot: Slot, waited: int | None = None) -> str:
    more = "" if waited is None else f"\n\tSeconds spent in queue: {waited}"
    if direction == "input":
        more += f"\n\tTransferring to host: {slot.sinful}"
    return f"040 {head} Started transferring {direction} files{more}"


def transfer_finished(head: str, direction: str) -> str:
    return f"040 {head} Finished transferring {direction} files"


def executing(head: str, slot: Slot) -> str:
    place = slot.place
    lines = [
        f"001 {head} Job executing on host: {slot.sinful}",
        f"\tSlotName: {slot.name}",
        f"\tAvailableGPUs = {{ {','.join('GPUs_' + g.replace('-', '_') for g in slot.gpus)} }}",
        f'\tCondorScratchDir = "/srv/execute/dir_{place.sock}"',
        "\tCpus = 8",
        "\tDisk = 104859341",
    ]
    if place.resource:
        lines.append(f'\tGLIDEIN_ResourceName = "{place.resource}"')
    lines.append(f"\tGPUs = {len(slot.gpus)}")
    for bus, gpu in enumerate(sorted(slot.gpus)):
        serial = gpu.removeprefix("GPU-")
        lines.append(
            f'\tGPUs_GPU_{serial} = [ Id = "{gpu}"; Capability = {place.gpu.capability}; '
            f'DeviceName = "{place.gpu.device}"; '
            f'DeviceUuid = "{serial}-6e84-1627-af54-062cf60f37fc"; ECCEnabled = true; '
            f'DriverVersion = 12.4; DevicePciBusId = "0000:{0x38 + 2 * bus:02X}:00.0"; '
            f"GlobalMemoryMb = {place.gpu.memory_mb}; MaxSupportedVersion = 12040 ]"
        )
    lines.append("\tMemory = 64000")
    return "\n".join(lines)


def memory(head: str, mb: int) -> str:
    return (
        f"006 {head} Image size of job updated: {mb * 1016}\n"
        f"\t{mb}  -  MemoryUsage of job (MB)\n"
        f"\t{mb * 1013}  -  ResidentSetSize of job (KB)"
    )


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    return f"{days} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def _usage(slot: Slot, seconds: int, mb: int | None, totals: bool) -> str:
    gpus = len(slot.gpus)
    peak = "" if mb is None else str(mb)
    rows = [
        "\tPartitionable Resources :       Usage   Request Allocated Assigned",
        "\t   Cpus                 :        0.54         8         8 ",
        "\t   Disk (KB)            : 56375214    104857600 104859341 ",
        f'\t   GPUs                 :          {1:>12} {gpus:>9} "{",".join(slot.gpus)}"',
        f"\t   Memory (MB)          : {peak:>8} {64000:>12} {64000:>9} ",
    ]
    if totals:
        rows.append(f"\t   TimeExecute (s)      : {seconds:>8}                        ")
        rows.append(f"\t   TimeSlotBusy (s)     : {seconds + 84:>8}                        ")
    return "\n".join(rows)


def terminated(
    head: str,
    slot: Slot,
    seconds: int,
    end: int | None,
    signal: int | None,
    moved: tuple[int, int],
    total: tuple[int, int],
    mb: int,
) -> str:
    how = (
        f"(0) Abnormal termination (signal {signal})\n\t(0) No core file"
        if signal is not None
        else f"(1) Normal termination (return value {end})"
    )
    spent = f"Usr {_clock(seconds * 9 // 10)}, Sys {_clock(seconds // 20)}"
    none = f"Usr {_clock(0)}, Sys {_clock(0)}"
    return (
        f"005 {head} Job terminated.\n\t{how}\n"
        f"\t\t{spent}  -  Run Remote Usage\n\t\t{none}  -  Run Local Usage\n"
        f"\t\t{spent}  -  Total Remote Usage\n\t\t{none}  -  Total Local Usage\n"
        f"\t{moved[0]}  -  Run Bytes Sent By Job\n\t{moved[1]}  -  Run Bytes Received By Job\n"
        f"\t{total[0]}  -  Total Bytes Sent By Job\n"
        f"\t{total[1]}  -  Total Bytes Received By Job\n"
        f"{_usage(slot, seconds, mb, totals=True)}"
    )


def evicted(
    head: str, slot: Slot, code: int, subcode: int, reason: str, moved: tuple[int, int]
) -> str:
    none = f"Usr {_clock(0)}, Sys {_clock(0)}"
    return (
        f"004 {head} Job was evicted. Code {code} Subcode {subcode}\n\t(0) CPU times\n"
        f"\t\t{none}  -  Run Remote Usage\n\t\t{none}  -  Run Local Usage\n"
        f"\t{moved[0]}  -  Run Bytes Sent By Job\n\t{moved[1]}  -  Run Bytes Received By Job\n"
        f"\tReason: {reason}\n"
        f"{_usage(slot, 0, None, totals=False)}"
    )


def shadow_exception(head: str, reason: str) -> str:
    return (
        f"007 {head} Shadow exception!\n\t{reason}\n"
        "\t0  -  Run Bytes Sent By Job\n\t0  -  Run Bytes Received By Job"
    )


def removed(head: str, reason: str) -> str:
    return f"009 {head} Job was aborted.\n\t{reason}"


def suspended(head: str) -> str:
    return f"010 {head} Job was suspended.\n\tNumber of processes actually suspended: 9"


def unsuspended(head: str) -> str:
    return f"011 {head} Job was unsuspended."


def held(head: str, code: int, subcode: int, reason: str) -> str:
    return f"012 {head} Job was held.\n\t{reason}\n\tCode {code} Subcode {subcode}"


def released(head: str) -> str:
    return f"013 {head} Job was released.\n\tvia condor_release (by user researcher)"


def remote_error(head: str, slot: Slot, message: str) -> str:
    return f"021 {head} Error from starter on {slot.name}:\n\t{message}"


def disconnected(head: str, slot: Slot) -> str:
    return (
        f"022 {head} Job disconnected, attempting to reconnect\n"
        "    Socket between submit and execute hosts closed unexpectedly\n"
        f"    Trying to reconnect to {slot.name} {slot.sinful}"
    )


def reconnected(head: str, slot: Slot) -> str:
    return (
        f"023 {head} Job reconnected to {slot.name}\n"
        f"    startd address: {slot.sinful}\n    starter address: {slot.sinful}"
    )


def reconnect_failed(head: str, slot: Slot) -> str:
    return (
        f"024 {head} Job reconnection failed\n"
        "    Job disconnected too long: JobLeaseDuration (2400 seconds) expired\n"
        f"    Can not reconnect to {slot.name}, rescheduling job"
    )
