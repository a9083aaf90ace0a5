"""Listening to this machine alone: its loopback addresses, and requests that name it.

A web page could reach a server here by a name of its own that resolves to this machine (DNS
rebinding): the Host header of a request shows that.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from metlmon.errors import InputError

ADDRESSES: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))

NO_IPV6: Final = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT))
"""Errors of listening on ::1 on a machine without IPv6; others mean that the port is in use."""


def listen(port: int, option: str) -> list[socket.socket]:
    """Sockets that listen on 127.0.0.1 and, if the machine has it, on ::1, with one port.

    ``port``: 0 for any free one; ``option`` sets it. Raises InputError if it cannot be used.
    """
    sockets: list[socket.socket] = []
    for family, address in ADDRESSES:
        try:
            sockets.append(socket.create_server((address, port), family=family))
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            if sockets and number in NO_IPV6:
                continue
            for each in sockets:
                each.close()
            reason = os.strerror(number) if number else "not between 0 and 65535"
            raise InputError(f"{option} {port}: {reason}; choose another port") from None
        port = sockets[0].getsockname()[1]
    return sockets


def host_headers(port: int) -> frozenset[str]:
    """The Host headers, in lower case, of requests to this machine."""
    return frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
