"""The cells of ``metlmon usage --json`` from the text of event logs, sharing no code with it.

For logs whose jobs are epochs. The rules are those of ``metlmon/README.md``, "Requests and use".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

Figures = dict[str, float | None]
HEADER = re.compile(r"(\d{3}) \((\d+)\.(\d+)\.\d+\) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ?(.*)")
ROWS = {
    "Cpus": "cpus",
    "Disk (KB)": "disk_kb",
    "GPUs": "gpus",
    "GpusMemory (MB)": "gpu_memory_mb",
    "Memory (MB)": "memory_mb",
    "TimeExecute (s)": "seconds",
}
RESOURCES = ("gpus", "gpu_memory_mb", "cpus", "memory_mb", "disk_kb")
Entry = dict[str, Any]


def events(text: str) -> Iterator[tuple[str, str, datetime, str]]:
    """Number, job, time and body; a header within a line starts another event."""
    starts = list(HEADER.finditer(text))
    for event, after in zip(starts, [*starts[1:], None], strict=True):
        end = after.start() if after else len(text)
        at = datetime.fromisoformat(event[4])
        yield event[1], f"{event[2]}.{int(event[3])}", at, text[event.start() : end]


def table(body: str, elapsed: float) -> Figures | None:
    """The figures of a usage table; a cell ends where its title does. ``elapsed``: by the log."""
    _, found, rest = body.partition("Partitionable Resources")
    if not found:
        return None
    title, *lines = rest.splitlines()
    title = f"{found}{title}"
    edges = [title.index(word) + len(word) for word in ("Usage", "Request", "Allocated")]
    # The title begins one tab in; labels are as long, up to the colon.
    shift = title.index(":")
    figures: Figures = {}
    for line in lines:
        label, colon, cells = line.partition(":")
        name = ROWS.get(label.strip())
        if colon and name:
            begin = 0
            for end, edge in zip(("", "_requested", "_allocated"), edges, strict=True):
                cell = cells[begin : edge - shift - 1].strip()
                figures[f"{name}{end}"] = float(cell) if cell else None
                begin = edge - shift - 1
    times = re.search(r"Usr (\d+) (.+?), Sys (\d+) (.+?)  -  Run Remote Usage", body)
    seconds = figures.get("seconds") or 0
    if not elapsed / 2 <= seconds <= elapsed + 3600:
        seconds = elapsed
    if times and seconds:
        clocks = [clock.split(":") for clock in (times[2], times[4])]
        used = sum(int(h) * 3600 + int(m) * 60 + int(s) for h, m, s in clocks)
        used += 86400 * (int(times[1]) + int(times[3]))
        figures["cpus"] = used / seconds if used else figures["cpus"]
    return figures


def executions(dagdir: Path) -> list[Entry]:
    uuids: dict[str, str] = {}
    submits: dict[str, str] = {}
    for dag in dagdir.glob("*.dag"):
        submits |= re.findall(r"^\s*JOB\s+(\S+)\s+(\S+)", dag.read_text(), re.MULTILINE)
        for node, line in re.findall(r"^\s*VARS\s+(\S+)\s+(.*)", dag.read_text(), re.MULTILINE):
            if found := re.search(r'run_uuid="(.*?)"', line):
                uuids[node] = found[1]
    open_: dict[str, Entry] = {}
    result: list[Entry] = []
    nodes: dict[str, str] = {}
    last = datetime.min
    for number, job, at, body in events((dagdir / "metl.log").read_text(errors="replace")):
        last = max(last, at)
        entry = open_.get(job)
        if number == "000":
            node = re.search(r'(?:DAG Node: |DAGNodeName = ")([\w-]+)', body)
            nodes[job] = node[1] if node else ""
        elif number == "001":
            site = re.search(r'GLIDEIN_ResourceName = "(.*?)"', body)
            alias = re.search(r"alias=([^&>]+)", body)
            names = {*re.findall(r'DeviceName = "(.*?)"', body)}
            count = re.search(r"^\tGPUs = (\d+)", body, re.MULTILINE)
            node_name = nodes[job]
            open_[job] = entry = {
                "job": job,
                "node": node_name,
                "submit": submits.get(node_name),
                "hidden": False,
                "run": uuids.get(node_name),
                "host": alias[1] if alias else None,
                "site": site[1] if site else "aws" if ".ec2." in body else None,
                "gpu": " + ".join(sorted(names)) or None,
                "gpus": int(count[1]) if count else 0,
                "start": at,
                "ended": "other",
                "usage": None,
            }
            result.append(entry)
        elif entry and number in ("004", "005", "007", "009", "012"):
            entry["end"] = at
            del open_[job]
            if number == "005" or "terminated and was requeued" in body:
                good = "return value 0)" in body
                entry["ended"] = "completed" if good and number == "005" else "failed"
            usage = table(body, (at - entry["start"]).total_seconds())
            earlier = [e["usage"] for e in result if e["job"] == job and e["usage"]]
            gpus = usage and (usage.get("gpus"), usage.get("gpu_memory_mb"))
            if usage and any(gpus == (u.get("gpus"), u.get("gpu_memory_mb")) for u in earlier):
                usage |= {"gpus": None, "gpu_memory_mb": None}
            entry["usage"] = usage
    longest: dict[str, float] = defaultdict(float)
    for entry in result:
        entry["hours"] = (entry.get("end", last) - entry["start"]).total_seconds() / 3600
        longest[entry["node"]] = max(longest[entry["node"]], entry["hours"])
    for entry in result:
        if entry["ended"] == "completed" and entry["hours"] < longest[entry["node"]] / 2:
            entry |= {"ended": "other", "hidden": True}
    return result


def size(kilobytes: float) -> str:
    power = sum(kilobytes >= 1024**each for each in (1, 2))
    return f"{kilobytes / 1024**power:.3g} {('KB', 'MB', 'GB')[power]}"


def request(entry: Entry, entries: Iterable[Entry]) -> str | None:
    """The request in an execution's table, else in the newest table of its job."""
    tables = [e["usage"] for e in entries if e["job"] == entry["job"] and e["usage"]]
    usage = entry["usage"] or (tables[-1] if tables else None)
    if usage is None:
        return None
    parts = [
        f"{usage[f'{name}_requested']:g} {noun}{'s' * (usage[f'{name}_requested'] != 1)}"
        for name, noun in (("gpus", "GPU"), ("cpus", "CPU"))
    ]
    memory, disk = usage["memory_mb_requested"] * 1024, usage["disk_kb_requested"]
    return ", ".join([*parts, size(memory), f"{size(disk)} disk"])


def least(amount: float, name: str) -> float:
    """The least possible usage where the schedd rounds up to 25 %: above the step below it."""
    width = {"memory_mb": 1024, "disk_kb": 1}.get(name, 0)
    if not width or amount < 50:
        return amount
    most = int(amount * width)
    step = 10 ** (floor(log10(most / 5)) + 1) / 4
    rounded = most // step * step
    # Only whole units: not the rounded amount where none is within this unit.
    if rounded <= (amount - 1) * width:
        return amount
    return (rounded - step) / width


def at_rank(values: list[float], share: float) -> float:
    rank = share * (len(values) - 1)
    low, high = sorted(values)[floor(rank)], sorted(values)[ceil(rank)]
    return low + (high - low) * (rank - floor(rank))


def cells(entries: list[Entry]) -> dict[str, Any]:
    """A group of executions, as an object of ``usage --json`` without its names."""
    tables = [e["usage"] for e in entries if e["usage"]]
    shares = [
        (e["hours"] * e["gpus"], e["usage"]["gpus"] / (e["usage"]["gpus_allocated"] or e["gpus"]))
        for e in entries
        if e["usage"] and e["usage"].get("gpus") is not None
    ]
    result: dict[str, Any] = {
        "executions": len(entries),
        "measured": sum(any(t.get(name) is not None for name in RESOURCES) for t in tables),
        "gpu_hours": sum(e["hours"] * e["gpus"] for e in entries),
        "measured_gpu_hours": sum(hours for hours, _ in shares),
        "computed_gpu_hours": sum(hours * share for hours, share in shares) if shares else None,
    }
    for name in RESOURCES:
        used = [t[name] for t in tables if t.get(name) is not None]
        statistics = {"median": 0.5, "p95": 0.95, "maximum": 1}
        cell: dict[str, Any] = {"measured": len(used), "at_most": []}
        for label, share in statistics.items():
            cell[label] = at_rank(used, share) if used else None
            if used and at_rank([least(value, name) for value in used], share) < cell[label]:
                cell["at_most"].append(label)
        for end in ("requested", "allocated"):
            known = [t[f"{name}_{end}"] for t in tables if t.get(f"{name}_{end}") is not None]
            cell |= {f"{end}_min": min(known, default=None), f"{end}_max": max(known, default=None)}
        result[name] = cell
    return result


def groups(dagdir: Path, by: str) -> dict[tuple[str | None, str], dict[str, Any]]:
    found: dict[tuple[str | None, str], list[Entry]] = defaultdict(list)
    entries = executions(dagdir)
    for entry in entries:
        key = request(entry, entries) if by == "request" else entry[by]
        found[key, entry["ended"]].append(entry)
    return {key: cells(group) for key, group in found.items()}


COMMANDS = {
    "request_memory": ("memory_mb", 1024),
    "request_disk": ("disk_kb", 1 << 20),
    "request_cpus": ("cpus", 1),
    "request_gpus": ("gpus", 1),
}
"""Resources by the command that requests them, and the step of a suggestion."""


def requests(dagdir: Path) -> list[dict[str, Any]]:
    """Cells of ``usage --requests --json`` by submit file, command and requested value.

    ``fitting``: the 95th percentile and a tenth, in steps; ``used``: by all completed jobs.
    """
    found: dict[tuple[Any, ...], list[Entry]] = defaultdict(list)
    for entry in executions(dagdir):
        if (entry["ended"] == "completed" or entry["hidden"]) and entry["usage"]:
            shape = [entry["usage"][f"{name}_requested"] for name, _ in COMMANDS.values()]
            found[entry["submit"], *shape].append(entry)
    rows = []
    for (submit, *requested), entries in found.items():
        for (command, (name, step)), present in zip(COMMANDS.items(), requested, strict=True):
            used = [e["usage"][name] for e in entries if e["usage"][name] is not None]
            usual = [e["usage"][name] for e in entries if not e["hidden"]]
            usual = [value for value in usual if value is not None]
            most_95 = at_rank(usual, 0.95) if usual else None
            rows.append(
                {
                    "submit": submit,
                    "command": command,
                    "requested": present,
                    "measured": len(usual),
                    "completed": len(used),
                    "used_95": most_95,
                    "used_most": max(usual, default=None),
                    "fitting": most_95 and ceil(most_95 * 1.1 / step) * step,
                    "used": used,
                }
            )
    return rows
