"""A dagdir of real files in which every text is a payload: one run for each attack and each form
of event log."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from tests.hostile.corpus import NAMES, filename, one_line, payload, word
from tests.support.wandb_files import history_record, log_file

FORMS: Final = ("text", "json", "xml")
SHARDS: Final = 4
EPOCHS: Final = 3


@dataclass
class Job:
    """A job of a node: the origin of its payloads."""

    cluster: int
    attack: int
    node: bytes
    clock: int = 0

    def stamp(self) -> str:
        self.clock += 60
        day, rest = divmod(self.clock, 86400)
        return f"2026-03-{1 + day:02} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


@dataclass
class Dagdir:
    """The written directory, and the names of its fields."""

    path: Path
    fields: set[str] = field(default_factory=set)
    filling: int = 0
    """Bytes that follow the first payload of each field."""

    def output_of(self, name: str, attack: int, formula: bool = True) -> bytes:
        """The payload of a field, which is recorded."""
        filling = 0 if name in self.fields else self.filling
        self.fields.add(name)
        return payload(name, attack, formula) + b"L" * filling

    def line(self, name: str, attack: int, formula: bool = True) -> bytes:
        return one_line(self.output_of(name, attack, formula))


def write(parent: Path, attacks: tuple[int, ...] | None = None, filling: int = 0) -> Dagdir:
    """Write a hostile dagdir below ``parent``; its own name is a payload, too. ``filling``: so many
    more bytes has the text in which a field first occurs."""
    attacks = tuple(range(len(NAMES))) if attacks is None else attacks
    name = filename(b".".join(payload("dagdir", a, False) for a in (0, 1, 10, 21)))[:240]
    path = Path(os.fsdecode(os.path.join(os.fsencode(parent), name)))
    path.mkdir()
    made = Dagdir(path, {"dagdir"}, filling)
    _Writer(made, attacks).write()
    return made


class _Writer:
    def __init__(self, made: Dagdir, attacks: tuple[int, ...]) -> None:
        self.made = made
        self.attacks = attacks
        self.dag: list[bytes] = []
        self.logs: dict[str, list[bytes]] = {form: [] for form in FORMS}
        self.nodes_log: list[bytes] = []
        self.out: list[bytes] = []
        self.jobstate: list[bytes] = []
        self.status: list[bytes] = []
        self.rescue: list[bytes] = []
        self.cluster = 100

    def put(self, name: bytes | str, data: bytes) -> None:
        path = os.path.join(os.fsencode(self.made.path), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def dag_name(self) -> bytes:
        return filename(word(self.made.output_of("dagfile", 1, False)))[:120] + b".dag"

    def write(self) -> None:
        dag = self.dag_name()
        for form in FORMS:
            # The XML is read like the JSON, once its letters are known.
            for attack in self.attacks[:: 3 if form == "xml" else 1]:
                self.run(form, attack)
        self.last_words(dag)
        self.toml()

    # --- one run ------------------------------------------------------------------------

    def run(self, form: str, attack: int) -> None:
        letter = form[0]
        result = self.made.line
        run = word(result(f"run{letter}", attack, False))
        uuid = filename(word(result(f"uuid{letter}", attack, False)))[:120]
        sub = word(result("subfile", attack, False)).replace(b"/", b"_")[:100] + letter.encode()
        sub += b".sub"
        out = filename(result("outfile", attack, False).replace(b"$", b"_"))[:100] + letter.encode()
        err = filename(result("errfile", attack, False).replace(b"$", b"_"))[:100] + letter.encode()
        described = [(b"# %b", "subcomment"), (b"executable = %b", "executable")]
        described += [(name.encode() + b" = %b", name) for name in ("arguments", "environment")]
        described += [(b"batch_name = %b", "batch"), (b"+Project = %b", "attribute")]
        described.append((b"requirements = TARGET.%b", "requirement"))
        lines = [line % result(name, attack) for line, name in described]
        files = (b"log = " + form.encode() + b".log", b"output = %b.$(epoch)" % out)
        self.put(sub, b"\n".join((*lines, *files, b"error = %b.$(epoch)" % err, b"queue\n")))
        previous = None
        for epoch in range(EPOCHS):
            node = run + b"-train_epoch%d" % epoch
            self.dag.append(b"# " + result("dagcomment", attack))
            self.dag.append(b"JOB %b %b" % (node, sub))
            quoted = {
                name: result(f"{name}{letter}", attack)
                .replace(b"\\", b"\\\\")
                .replace(b'"', b'\\"')
                for name in ("resource", "seed", "other", "swept")
            }
            self.dag.append(
                b'VARS %b run="%b" run_uuid="%b" epoch="%d" ResourceName="%b" random_seed="%b" '
                b'x="%b" y="%b"'
                % (
                    *(node, run, uuid, epoch + 1, quoted["resource"], quoted["seed"]),
                    *(quoted["other"], quoted["swept"]),
                )
            )
            self.gate(node, uuid, epoch)
            self.dag.append(b"RETRY %b 3" % node)
            if previous is not None:
                self.dag.append(b"PARENT %b CHILD %b" % (previous, node))
            previous = node
            self.put(out + b".%d" % (epoch + 1), self.output("jobout", attack))
            self.put(err + b".%d" % (epoch + 1), self.output("joberr", attack))
            if epoch < 2:
                self.cluster += 1
                job = Job(self.cluster, attack, node, epoch * 43200)
                self.job(form, letter, job, last=epoch == 1)
                self.words(job)
        self.steered(letter, uuid, node, attack)
        self.training(letter, uuid, attack)

    # --- gates, and nodes beside the epochs -----------------------------------------------

    def gate_name(self) -> bytes:
        return filename(word(self.made.output_of("gatename", 1, False)).replace(b"/", b"_"))[:100]

    def gate(self, node: bytes, uuid: bytes, epoch: int) -> None:
        self.dag.append(
            b"SCRIPT DEFER 75 60 PRE %b gate.py %b.gate.json %b %d train $JOB"
            % (node, self.gate_name(), uuid, epoch)
        )
        self.dag.append(b"PRE_SKIP %b 42" % node)

    def steered(self, letter: str, uuid: bytes, last: bytes, attack: int) -> None:
        """Files of the gate and of people: every third run was stopped, every third is
        retargeted."""
        folder = b"gate/" + self.gate_name() + b"/"
        result = self.made.output_of
        if attack % 3 == 0:
            reason = result(f"stopped{letter}", attack).decode("utf-8", "replace")
            outcome = {"schema": 1, "epoch": 2, "rule": "file", "reason": reason}
            self.put(folder + uuid + b".stopped", json.dumps(outcome).encode())
        elif attack % 3 == 1:
            self.put(folder + uuid + b".target", word(result("target", attack, False)) + b"\n")
            placed = b"ResourceName = " + word(result("placement", attack, False)) + b"\n"
            if b"/" not in last:
                self.put(b"placement/" + self.gate_name() + b"/" + last + b".inc", placed)
        else:
            self.put(folder + uuid + b".paused", one_line(result("paused", attack)))

    def beside(self) -> None:
        """Nodes of no run: a bag, a job at the end, and what the gates could not do."""
        self.put("shard.sub", b"executable = x\nlog = text.log\nqueue\n")
        for attack in self.attacks[:2]:
            name = word(self.made.output_of("shard", attack, False))
            self.dag += [b"JOB %b-%03d shard.sub" % (name, at) for at in range(SHARDS)]
        self.dag.append(b"FINAL %b shard.sub" % word(self.made.output_of("final", 0, False)))
        log = b"\n".join(self.made.line("gatelog", attack) for attack in self.attacks)
        self.put(b"gate/" + self.gate_name() + b"/gate.log", log + b"\n")

    def output(self, name: str, attack: int) -> bytes:
        progress = b"Epoch 1:  26%|##6    | 36/140 [00:01<00:02, 35.00it/s, loss=0.548, v_num=1]\n"
        result = self.made.output_of(name, attack)
        return b"a line before\n" + result + b"\n" + b"val_loss=0.5 " + result + b"\n" + progress

    def job(self, form: str, letter: str, job: Job, last: bool) -> None:
        events = list(self.story(letter, job, last))
        self.logs[form] += [RENDER[form](job, event) for event in events]
        self.nodes_log += [text_event(job, event) for event in events if event["n"] in NODE_EVENTS]

    def story(self, letter: str, job: Job, last: bool) -> Iterator[dict[str, Any]]:
        """The events of one job; the second job of a run ends as its attack requires."""
        ends = LAST_ENDS[job.attack % 4] if last else FIRST_END
        for number, more in (*BEGIN, *(each for ran in RAN for each in (*STARTED, *ran)), *ends):
            event = {"n": number, "stamp": job.stamp(), "type": 0, "code": 0}
            for name, value in more.items():
                is_field = isinstance(value, str)
                event[name] = self.made.output_of(value + letter, job.attack) if is_field else value
            yield event

    def words(self, job: Job) -> None:
        """DAGMan's messages about it."""
        at = f"03/01/26 01:{job.cluster // 60 % 60:02}:{job.cluster % 60:02}"
        line = self.made.line
        head = at.encode() + b" "
        self.out.append(
            head
            + b"Event: ULOG_SUBMIT for HTCondor Node %b (%d.0.0) {%b}"
            % (job.node, job.cluster, line("outstamp", job.attack, False))
        )
        self.out.append(head + line("outline", job.attack, False))
        self.out.append(head + b"ERROR: " + line("outerror", job.attack, False))
        self.out.append(head + b"Node %b job completed" % job.node)
        self.jobstate.append(
            b"17000%05d %b SUBMIT %d.0 - - 1" % (job.cluster, job.node, job.cluster)
        )
        self.jobstate.append(b"17000%05d %b" % (job.cluster, line("jobstate", job.attack, False)))
        quoted = line("details", job.attack, False).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        name = job.node.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        self.status.append(
            b'[\n  Type = "NodeStatus";\n  Node = "%b";\n  NodeStatus = 3; /* "%b" */\n'
            b'  StatusDetails = "%b";\n  RetryCount = 1;\n  JobProcsQueued = 1;\n'
            b"  JobProcsHeld = 0;\n]" % (name, quoted.replace(b"*/", b""), quoted)
        )
        self.rescue.append(b"# " + line("rescuecomment", job.attack, False))
        self.rescue.append(b"RETRY %b 2" % job.node)
        self.rescue.append(b"DONE " + word(line("rescuenode", job.attack, False)))

    def training(self, letter: str, uuid: bytes, attack: int) -> None:
        result = self.made.output_of
        folder = b"output/training_logs/" + uuid + b"/version_0/"
        metric = result(f"metric{letter}", attack).replace(b'"', b'""')
        self.put(
            folder + b"metrics.csv",
            b'val_loss,"%b",epoch,step\n0.5,0.25,0,10\n0.4,0.125,1,20\n' % metric,
        )
        name = result(f"wandbmetric{letter}", attack).decode("utf-8", "replace")
        row = {name.replace(".", "·"): 0.25, "val_loss": 0.75, "epoch": 2}
        self.put(
            b"output/training_logs/" + uuid + b"/wandb/offline-run-1-a/run-a.wandb",
            log_file([history_record(row)]),
        )
        self.put(folder + b"metrics.txt", one_line(result("summary", attack)) + b",1.5\n")
        argument = one_line(result("argname", attack, False)), one_line(result("argvalue", attack))
        self.put(folder + b"args.txt", b"--%b\n%b\n" % argument)
        folder = b"output/training_logs/" + uuid + b"/" + filename(result("folder", attack, False))
        self.put(
            folder + b"/metrics.csv", result("badcsv", attack) + b'\n"' + result("badcsv", attack)
        )

    # --- the ensemble's own ---------------------------------------------------------------

    def last_words(self, dag: bytes) -> None:
        line = self.made.line
        self.beside()
        text = b"\n".join(self.dag)
        for attack in self.attacks:
            text += b"\nCATEGORY ALL_NODES " + word(line("category", attack, False))
            text += b"\nMAXJOBS " + word(line("maxjobs", attack, False)) + b" 5"
            text += b"\nSCRIPT POST ALL_NODES " + line("script", attack, False).replace(b"\\", b"_")
        text += b"\nNODE_STATUS_FILE nodes.status\nJOBSTATE_LOG dag.jobstate\n"
        self.put(dag, text)
        for form in FORMS:
            self.put(f"{form}.log", b"".join(self.logs[form]))
        self.put(dag + b".nodes.log", b"".join(self.nodes_log))
        begin = b"03/01/26 00:00:00 ** condor_scheduniv_exec.77.0 (CONDOR_DAGMAN) STARTING UP\n"
        self.put(dag + b".dagman.out", begin + b"\n".join(self.out) + b"\n")
        self.put("dag.jobstate", b"\n".join(self.jobstate) + b"\n")
        head = b'[\n  Type = "DagStatus";\n  DagStatus = 3; /* "x" */\n  NodesTotal = 9;\n]\n'
        self.put("nodes.status", head + b"\n".join(self.status) + b"\n")
        self.put(dag + b".rescue001", b"\n".join(self.rescue) + b"\n")
        result = payload("dagmetrics", 0).decode("utf-8", "replace")
        self.put(dag + b".metrics", json.dumps({"type": result, "jobs": result}).encode())
        self.put(
            dag + b".dagman.log",
            b"000 (077.000.000) 2026-03-01 00:00:00 Job submitted from host: "
            + line("dagmanhost", 0)
            + b"\n...\n001 (077.000.000) 2026-03-01 00:00:01 "
            b"Job executing on host: " + line("dagmanhost", 2) + b"\n...\n",
        )
        for attack in self.attacks:
            self.put(
                filename(payload("logfile", attack, False)) + b".log",
                b"000 (9%02d.000.000) 2026-03-01 00:00:00 Job submitted from host: <x>\n"
                b"    DAG Node: %b\n...\n"
                % (attack, word(line("strange", attack, False)))
                + line("noise", attack)
                + b"\n...\n",
            )
            self.made.fields.add("logfile")
            other = filename(word(line("otherdag", attack, False)))[:100] + b".dag"
            self.put(other, b"JOB A x.sub\n" + word(line("badcommand", attack, False)) + b" x y\n")

    def toml(self) -> None:
        def text(name: str, attack: int) -> str:
            self.made.fields.add(name)
            result = payload(name, attack).decode("utf-8", "replace")
            return '"' + "".join(_toml(character) for character in result) + '"'

        outcome = ['tz = "UTC"', "[site_aliases]"]
        outcome += [f"{text('aliasfrom', a)} = {text('aliasto', a)}" for a in self.attacks]
        for attack in self.attacks:
            runs = f'["runt{attack:02}zq*", "runj{attack:02}zq*"]'
            outcome += ["[[label]]", f"name = {text('label', attack)}", f"runs = {runs}"]
            outcome += ["[[site]]", f"host = {text('sitehost', attack)}"]
            outcome.append(f"name = {text('sitename', attack)}")
        self.put("metlmon.toml", "\n".join(outcome).encode() + b"\n")


def _toml(character: str) -> str:
    if character in '"\\' or ord(character) < 0xA0:
        return f"\\u{ord(character):04x}"
    return character


NODE_EVENTS: Final = frozenset({0, 1, 4, 5, 7, 8, 9, 12, 13})

# --- the events of a job: numbers, and the field of each of their texts ------------------------

BEGIN: Final = (
    (0, {"host": "submithost", "notes": "notes", "warn": "submitwarning"}),
    (40, {"type": 2, "host": "transferhost"}),
    (40, {"type": 3, "host": b""}),
)
STARTED: Final = (
    (1, {"host": "host", "slot": "slot", "site": "site", "gpu": "gpu", "prop": "property"}),
    (6, {}),
)
RAN: Final = (
    (
        (8, {"text": "generic"}),
        (21, {"text": "remoteerror", "host": "errorhost"}),
        (22, {"text": "disconnect", "host": "disconnecthost"}),
        (24, {"text": "reconnectfail", "host": "reconnecthost"}),
        (4, {"text": "evict"}),
    ),
    ((7, {"text": "shadow"}),),
    ((12, {"text": "holdover", "code": 12}), (13, {"text": "release"})),
    (),
)
FIRST_END: Final = ((5, {"text": "toe", "assigned": "assigned"}),)
LAST_ENDS: Final = (
    ((12, {"text": "hold", "code": 13}),),
    ((99, {"text": "future"}),),
    ((7, {"text": "shadowlast"}), (28, {"text": "adinfo"})),
    ((9, {"text": "abort"}),),
)

# --- events in the three forms: MyType, lines as condor_event.cpp prints them, attributes -------

EVENTS: Final[dict[int, tuple[str, bytes, dict[str, Any]]]] = {
    0: (
        "SubmitEvent",
        b"Job submitted from host: <%(host)b>\n    DAG Node: %(node)b\n    %(notes)b\n"
        b"    WARNING: %(warn)b",
        {
            "SubmitHost": "{host}",
            "LogNotes": "DAG Node: {node}",
            "UserNotes": "{notes}",
            "Warnings": "{warn}",
        },
    ),
    1: (
        "ExecuteEvent",
        b"Job executing on host: <%(host)b>\n\tSlotName: %(slot)b\n\tCpus = 1\n"
        b'\tGLIDEIN_ResourceName = "%(site)b"\n\tGPUs = 1\n'
        b'\tGPUs_GPU_1 = [ Id = "GPU-1"; DeviceName = "%(gpu)b"; GlobalMemoryMb = 40000 ]\n'
        b'\tProp = "%(prop)b"',
        {
            "ExecuteHost": "{host}",
            "SlotName": "{slot}",
            "ExecuteProps": {
                "GPUs": 1,
                "GLIDEIN_ResourceName": "{site}",
                "Prop": "{prop}",
                "GPUs_GPU_1": {"DeviceName": "{gpu}", "GlobalMemoryMb": 40000},
            },
        },
    ),
    4: (
        "JobEvictedEvent",
        b"Job was evicted. Code 1008 Subcode 0\n\t(0) CPU times\n"
        b"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage\n\tReason: %(text)b",
        {"ReasonCode": 1008, "ReasonSubCode": 0, "Reason": "{text}"},
    ),
    5: (
        "JobTerminatedEvent",
        b"Job terminated.\n\t(1) Normal termination (return value 0)\n"
        b"\tPartitionable Resources :       Usage   Request Allocated Assigned\n"
        b'\t   GPUs                 :                      1         1 "%(assigned)b"\n'
        b"\tJob terminated of its own accord at %(text)b",
        {
            "TerminatedNormally": True,
            "ReturnValue": 0,
            "ToE": {"Who": "{text}"},
            "AssignedGPUs": "{assigned}",
        },
    ),
    6: (
        "JobImageSizeEvent",
        b"Image size of job updated: 100\n\t1  -  MemoryUsage of job (MB)",
        {"Size": 100, "MemoryUsage": 1},
    ),
    7: ("ShadowExceptionEvent", b"Shadow exception!\n\t%(text)b", {"Message": "{text}"}),
    8: ("GenericEvent", b"%(text)b", {"Info": "{text}"}),
    9: ("JobAbortedEvent", b"Job was aborted.\n\t%(text)b", {"Reason": "{text}"}),
    12: (
        "JobHeldEvent",
        b"Job was held.\n\t%(text)b\n\tCode %(code)d Subcode 0",
        {"HoldReason": "{text}", "HoldReasonCode": "code", "HoldReasonSubCode": 0},
    ),
    13: ("JobReleasedEvent", b"Job was released.\n\t%(text)b", {"Reason": "{text}"}),
    21: (
        "RemoteErrorEvent",
        b"Error from starter on %(host)b:\n\t%(text)b",
        {"Daemon": "starter", "ExecuteHost": "{host}", "ErrorMsg": "{text}", "CriticalError": True},
    ),
    22: (
        "JobDisconnectedEvent",
        b"Job disconnected, attempting to reconnect\n    %(text)b\n"
        b"    Trying to reconnect to %(host)b",
        {"DisconnectReason": "{text}", "StartdName": "{host}", "StartdAddr": "<x>"},
    ),
    24: (
        "JobReconnectFailedEvent",
        b"Job reconnection failed\n    %(text)b\n"
        b"    Can not reconnect to %(host)b, rescheduling job",
        {"Reason": "{text}", "StartdName": "{host}"},
    ),
    28: (
        "JobAdInformationEvent",
        b'Job ad information event triggered.\nSome = "%(text)b"',
        {"Some": "{text}"},
    ),
    40: (
        "FileTransferEvent",
        b"%(verb)b transferring input files\n\tTransferring to host: %(host)b",
        {"Type": "type", "Host": "{host}"},
    ),
    99: (
        "FutureEvent",
        b"%(text)b\n\t%(text)b",
        {"EventHead": "{text}", "EventPayloadLines": "{text}"},
    ),
}


def text_event(job: Job, event: dict[str, Any]) -> bytes:
    """As ``condor_event.cpp`` prints it."""
    texts: dict[bytes, Any] = {b"node": job.node, b"code": event["code"]}
    texts[b"verb"] = b"Started" if event["type"] == 2 else b"Finished"
    for name, value in event.items():
        if isinstance(value, bytes):
            quoted = name in ("site", "gpu", "prop")
            value = value.replace(b'"', b'\\"') if quoted else value
            texts[name.encode()] = one_line(value)
    head = b"%03d (%03d.000.000) %b " % (event["n"], job.cluster, event["stamp"].encode())
    return head + EVENTS[event["n"]][1] % texts + b"\n...\n"


def attributes(job: Job, event: dict[str, Any]) -> dict[str, Any]:
    """The attributes of the same event."""
    texts = {k: v.decode("utf-8", "surrogateescape") for k, v in event.items() if type(v) is bytes}
    texts["node"] = job.node.decode("utf-8", "replace")

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(each) for name, each in value.items()}
        if value in ("type", "code"):
            return event[value]
        return value.format_map(texts) if isinstance(value, str) else value

    kind, _, more = EVENTS[event["n"]]
    head = {"MyType": kind, "EventTypeNumber": event["n"], "Cluster": job.cluster, "Proc": 0}
    time = event["stamp"].replace(" ", "T")
    result: dict[str, Any] = {**head, "Subproc": 0, "EventTime": time, **filled(more)}
    return result


def json_event(job: Job, event: dict[str, Any]) -> bytes:
    return json.dumps(attributes(job, event), indent=1, ensure_ascii=True).encode() + b"\n"


def xml_event(job: Job, event: dict[str, Any]) -> bytes:
    return (_xml(attributes(job, event)) + "\n").encode("utf-8", "surrogateescape")


def _xml(value: Any) -> str:
    if isinstance(value, dict):
        inner = "".join(f'<a n="{name}">{_xml(each)}</a>\n' for name, each in value.items())
        return f"<c>\n{inner}</c>"
    if isinstance(value, bool):
        return f'<b v="{"t" if value else "f"}"/>'
    return f"<i>{value}</i>" if isinstance(value, int) else f"<s>{escape(value)}</s>"


RENDER: Final = {"text": text_event, "json": json_event, "xml": xml_event}
