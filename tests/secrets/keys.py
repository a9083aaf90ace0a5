"""Keys of the shapes that issuers give them, drawn for the tests: none was ever valid."""

from __future__ import annotations

from typing import Final

_LOT: Final = "q7Xz2LmP9vRk4TbN8sWd3HyJ6cFg5AeU1oKi0ZxYtQrVwMnB"
"""Letters and digits as if by lot."""

SHAPES: Final = {
    "AWS": "AKIAQ7XZ2LMP9VRK4TBN",
    "AWS for a while": "ASIAQ7XZ2LMP9VRK4TBN",
    "AWS secret": "q7Xz2LmP9vRk4/bN8sWd3HyJ6cFg5A+U1oKi0ZxY",
    "GitHub": f"ghp_{_LOT[:36]}",
    "GitHub's server": f"ghs_{_LOT[:36]}",
    "GitHub, newer": f"github_pat_{_LOT[:22]}_{_LOT}",
    "GitLab": f"glpat-{_LOT[:20]}",
    "Hugging Face": f"hf_{_LOT[:34]}",
    "OpenAI": f"sk-proj-{_LOT}",
    "Anthropic": f"sk-ant-api03-{_LOT[:20]}_{_LOT[:20]}-AA",
    "Slack": "xoxb-123456789012-1234567890123-q7Xz2LmP9vRk4TbN8sWd3HyJ",
    "Google": f"AIza{_LOT[:35]}",
    "W&B": "3f9a1c5e7b2d4f608a1c3e5d7f9b0a2c4e6d8f01",
    "W&B, newer": f"wandb_v1_{_LOT}",
    "token of a pool": f"eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJwb29sIn0.{_LOT[:43]}",
    "by lot": _LOT[:40],
}

PEM: Final = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gt\n"
    "ZWQyNTUxOQAAACDq7Xz2LmP9vRk4TbN8sWd3HyJ6cFg5AeU1oKi0ZxYtQ\n"
    "-----END OPENSSH PRIVATE KEY-----"
)
