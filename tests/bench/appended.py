"""Events that the benches write into a log while it is watched."""

from __future__ import annotations

SUBMIT = "000 ({job}) {at} Job submitted from host: <127.0.0.1:9618>\n    DAG Node: {node}\n...\n"
EXECUTE = (
    "001 ({job}) {at} Job executing on host: <127.0.0.1:9618>\n\tSlotName: slot1@node.example.org\n"
    '\tGLIDEIN_ResourceName = "Delta-GPU"\n\tGPUs = 1\n...\n'
)
HOLD = "012 ({job}) {at} Job was held.\n\tmeasuring\n\tCode 1 Subcode 0\n...\n"
RELEASE = "013 ({job}) {at} Job was released.\n\tmeasuring\n...\n"
