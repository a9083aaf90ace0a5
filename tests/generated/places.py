"""Where the generated ensemble's jobs run: sites, their machines and their GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of one model at one site.

    ``site``: its name as metlmon shall show it; ``resource``: ``GLIDEIN_ResourceName`` of its
    001 events, None where only the host tells; ``host``: with ``{}`` for the machine's number;
    ``gpu``: the model as the settings call it, ``device`` as the log does; ``hours``: median
    of an epoch; ``shares``: epochs that complete here of heterogeneous and of control runs.
    """

    site: str
    target: str
    resource: str | None
    host: str
    gpu: str
    device: str
    capability: float
    memory_mb: int
    hours: float
    most_gpus: int
    shares: tuple[int, int]

    @property
    def sock(self) -> str:
        """Tells one place's daemons from another's."""
        return f"{sum(self.host.encode()) % 9000 + 1000}_{len(self.device)}"


PLACES: Final = (
    Place(
        "PDX-Coeus-CE1",
        "ospool",
        "PDX-Coeus-CE1",
        "gpu-{:02d}.coeus.example.edu",
        "RTX A5000",
        "NVIDIA RTX A5000",
        8.6,
        24247,
        9.5,
        1,
        (120, 90),
    ),
    # The same model as above, and slower: a table of medians by site and GPU must show it.
    Place(
        "NRP",
        "ospool",
        "SDSC-PRP-CE1",
        "node-{:d}.nrp.example.net",
        "RTX A5000",
        "NVIDIA RTX A5000",
        8.6,
        24247,
        14.0,
        1,
        (84, 60),
    ),
    Place(
        "NRP",
        "ospool",
        "SDSC-PRP-CE1",
        "a100-{:d}.nrp.example.net",
        "A100-PCIE-40GB",
        "NVIDIA A100-PCIE-40GB",
        8.0,
        40326,
        5.5,
        1,
        (6, 0),
    ),
    Place(
        "delta",
        "delta",
        None,
        "gpub{:03d}.delta.ncsa.illinois.edu",
        "A40",
        "NVIDIA A40",
        8.6,
        45416,
        8.5,
        2,
        (70, 0),
    ),
    Place(
        "delta",
        "delta",
        None,
        "gpua{:03d}.delta.ncsa.illinois.edu",
        "A100-SXM4-40GB",
        "NVIDIA A100-SXM4-40GB",
        8.0,
        40326,
        4.8,
        2,
        (25, 0),
    ),
    Place(
        "campus",
        "campus",
        None,
        "gpu{:02d}.hpc.example.edu",
        "A40",
        "NVIDIA A40",
        8.6,
        45416,
        8.9,
        1,
        (38, 0),
    ),
    Place(
        "anvil",
        "anvil",
        None,
        "g{:03d}.anvil.rcac.purdue.edu",
        "A100-SXM4-40GB",
        "NVIDIA A100-SXM4-40GB",
        8.0,
        40326,
        4.9,
        1,
        (18, 0),
    ),
    Place(
        "CHTC-Spark-CE1",
        "ospool",
        "CHTC-Spark-CE1",
        "gpulab{:04d}.chtc.wisc.edu",
        "A100-SXM4-80GB",
        "NVIDIA A100-SXM4-80GB",
        8.0,
        81050,
        4.4,
        1,
        (45, 0),
    ),
    Place(
        "aws",
        "aws",
        None,
        "ip-172-31-30-{:d}.ec2.internal",
        "A100-SXM4-80GB",
        "NVIDIA A100-SXM4-80GB",
        8.0,
        81050,
        4.5,
        4,
        (28, 0),
    ),
    Place(
        "expanse",
        "expanse",
        None,
        "exp-3-{:02d}.expanse.sdsc.edu",
        "V100-SXM2-32GB",
        "Tesla V100-SXM2-32GB",
        7.0,
        32494,
        13.0,
        1,
        (30, 0),
    ),
    Place(
        "bridges2",
        "bridges2",
        None,
        "v{:03d}.bridges2.psc.edu",
        "V100-SXM2-32GB",
        "Tesla V100-SXM2-32GB",
        7.0,
        32494,
        13.4,
        1,
        (16, 0),
    ),
)
"""Completed epochs by model are those of the METL experiment's first round: A100-PCIE-40GB 6,
A100-SXM4-40GB 43, A100-SXM4-80GB 73, A40 108, RTX A5000 354, V100-SXM2-32GB 46."""
