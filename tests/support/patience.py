"""How long tests wait."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 120.0
"""Seconds until a test fails because what it waits for has not come.

Only a failing test waits so long. A machine that is busy with other work takes many times as long
as an idle one for the same.
"""
