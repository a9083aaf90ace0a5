"""The web server of ``metlmon serve``: who may send requests, and how they are answered.

Only this machine can connect. Each request needs the token, which the first line of output
contains, and a Host header that names this machine: a web page could otherwise reach the server by
a name of its own that resolves here (DNS rebinding). Requests from other pages (Origin) are
refused. The token stays in the URL instead of a cookie: a browser sends cookies of 127.0.0.1 to
every port, so that another user's server, opened in the same browser, would receive it.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import logging
import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from jinja2 import Environment
from textual_serve.server import Server

from metlmon.errors import describe_error
from metlmon.loopback import host_headers, listen
from metlmon.serve.app_process import AppProcess, message_screen

MAX_TABS: Final = 8
"""Maximum dashboards at a time: each is a process of 50 MB or more."""

TOO_MANY: Final = (
    f"metlmon: {MAX_TABS} dashboards are open in tabs already: close one, then start this again"
)

HEARTBEAT_SECONDS: Final = 15.0
"""Interval of checks whether a tab is still there: a laptop may be asleep."""

CLOSE_SECONDS: Final = 2.0
"""Time for a tab to confirm that its connection is closed."""

SHUTDOWN_SECONDS: Final = 6.0
"""Time at the end for all programs to end, beyond the time that the last of them has."""

STATICS: Final = {"css/xterm.css": "text/css", "js/textual.js": "text/javascript"}
"""The files of textual-serve that the page needs; no others are served."""

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "metlmon",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

DEFAULT_POLICY: Final = "default-src 'none'; frame-ancestors 'none'; sandbox"

PAGE_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "script-src 'self' 'nonce-{nonce}'; connect-src 'self' ws://{host}; img-src data:; "
    # xterm.js writes its own style elements and attributes.
    "style-src 'self' 'unsafe-inline'"
)

HEAD_SECONDS: Final = 10.0
"""Time for a request after connecting; slower ones need the token."""

MAX_STRANGERS: Final = 64
"""Maximum connections without a token; beyond it the oldest, hardly the owner's, is closed."""

BACKLOG: Final = 32
"""Connections accepted at once: each takes a file descriptor, of often only 256."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Terminal(NamedTuple):
    """Columns and lines of a tab's terminal."""

    width: int
    height: int


LARGEST: Final = Terminal(500, 200)
"""A 4K screen in a tiny font; a tab of this size takes some 140 MB."""


class DashboardServer(Server):
    """Serves a dashboard on 127.0.0.1, and on ::1 if the machine has it.

    ``arguments``: what each tab runs; ``title``: that of its page; ``port``: 0 for any free one.
    Raises InputError if the port is taken.
    """

    def __init__(self, arguments: Sequence[str], title: str, port: int) -> None:
        self._sockets = listen(port, "--port")
        port = self._sockets[0].getsockname()[1]
        super().__init__("", host="127.0.0.1", port=port, title=title)
        self.token = secrets.token_urlsafe(32)
        self.hosts = host_headers(port)
        self._arguments = arguments
        self._processes: set[AppProcess] = set()
        self._websockets: set[web.WebSocketResponse] = set()
        self._strangers: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._reported: set[str] = set()
        template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
        self._page = Environment(autoescape=True).from_string(template)
        self._statics = {
            name: gzip.compress((self.statics_path / name).read_bytes(), mtime=0)
            for name in STATICS
        }

    @property
    def url(self) -> str:
        """The URL that a browser opens, with the token."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    async def serve_until(self, stopped: asyncio.Event) -> None:
        """Answer requests until ``stopped`` is set; then end all programs."""
        # aiohttp's own logs would contain the URL, with the token.
        silent = logging.Logger("metlmon.serve")
        silent.addHandler(logging.NullHandler())
        runner = web.AppRunner(
            await self._make_app(),
            access_log=None,
            logger=silent,
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        await runner.setup()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._report)

        def connect() -> web.RequestHandler:
            assert runner.server is not None
            connection = runner.server()
            # The first step of the connection, which opens it, is not scheduled yet.
            loop.call_soon(loop.call_soon, self._limit, connection)
            return connection

        servers = [
            await loop.create_server(connect, sock=each, backlog=BACKLOG) for each in self._sockets
        ]
        try:
            await stopped.wait()
        finally:
            for server in servers:
                server.close()
            await runner.cleanup()

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Print an error of asyncio as a sentence, once."""
        text, error = str(context["message"]), context.get("exception")
        if text not in self._reported:
            self._reported.add(text)
            reason = getattr(error, "strerror", None) or type(error).__name__
            print(f"metlmon: {text}: {reason}", file=sys.stderr)

    def _limit(self, connection: web.RequestHandler) -> None:
        """Close a new connection if it sends no request with the token soon."""
        if len(self._strangers) >= MAX_STRANGERS:
            self._close_stranger(next(iter(self._strangers)))
        loop = asyncio.get_running_loop()
        close = loop.call_later(HEAD_SECONDS, self._close_stranger, connection)
        self._strangers[connection] = close

    def _close_stranger(self, connection: web.RequestHandler) -> None:
        self._strangers.pop(connection).cancel()
        connection.force_close()

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._refuse_strangers])
        app.router.add_get("/", self.handle_index, allow_head=False)
        app.router.add_get("/ws/{token}", self.handle_websocket, allow_head=False)
        app.router.add_get("/static/{name:.*}", self._handle_static, allow_head=False)
        app.router.add_get("/download/{key}", self.handle_download, allow_head=False)
        app.on_response_prepare.append(_add_headers)
        app.on_shutdown.append(self.on_shutdown)
        return app

    # --- who may ask --------------------------------------------------------------------------

    @web.middleware
    async def _refuse_strangers(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = self._refusal(request)
        if refusal is not None:
            refused = web.Response(status=403, text=f"{refusal}\n")
            refused.force_close()
            return refused
        close = self._strangers.pop(request.protocol, None)
        if close is not None:
            close.cancel()
        try:
            return await handler(request)
        except web.HTTPException as error:
            allowed = {"Allow": "GET"} if error.status == 405 else {}
            return web.Response(status=error.status, text=f"{error.reason}\n", headers=allowed)
        except Exception as error:
            print(f"metlmon: {describe_error('a request failed', error)}", file=sys.stderr)
            return web.Response(status=500, text="metlmon serve failed here\n")

    def _refusal(self, request: web.Request) -> str | None:
        """Why a request is refused; None if it is accepted."""
        hosts = [each.strip().lower() for each in request.headers.getall("Host", [])]
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return f"the Host header names another machine or port: open 127.0.0.1:{self.port}"
        origins = request.headers.getall("Origin", [])
        is_websocket = "Upgrade" in request.headers
        if (origins or is_websocket) and origins != [f"http://{hosts[0]}"]:
            return "this was asked for by another page: open the URL that metlmon serve printed"
        tokens = request.query.getall("token", [])
        if is_websocket:
            tokens = [request.match_info.get("token", "")]
        given = [token.encode("utf-8", "replace") for token in tokens]
        if len(given) != 1 or not hmac.compare_digest(given[0], self.token.encode()):
            return "the token is missing or wrong: open the URL that metlmon serve printed"
        return None

    # --- what is answered ---------------------------------------------------------------------

    async def handle_index(self, request: web.Request) -> web.Response:
        """The page of a dashboard."""
        host, nonce = request.headers["Host"].strip().lower(), secrets.token_urlsafe(16)
        page = self._page.render(
            title=self.title,
            token=self.token,
            nonce=nonce,
            websocket_url=f"ws://{host}/ws/{self.token}",
        )
        policy = PAGE_POLICY.format(nonce=nonce, host=host)
        return web.Response(
            text=page, content_type="text/html", headers={"Content-Security-Policy": policy}
        )

    async def _handle_static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._statics:
            raise web.HTTPNotFound
        body, headers = self._statics[name], {"Content-Encoding": "gzip"}
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            body, headers = gzip.decompress(body), {}
        return web.Response(body=body, content_type=STATICS[name], charset="utf-8", headers=headers)

    async def handle_download(self, request: web.Request) -> web.StreamResponse:
        """A file that a dashboard sends, once; never shown as a page of this server."""
        key = request.match_info["key"]
        try:
            download = await self.download_manager.get_download_metadata(key)
        except KeyError:
            raise web.HTTPNotFound from None
        name = quote(download.file_name, safe="")
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
            }
        )
        await response.prepare(request)
        async for chunk in self.download_manager.download(key):
            await response.write(chunk)
        await response.write_eof()
        return response

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """The connection of a tab: its program runs as long as this."""
        websocket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, timeout=CLOSE_SECONDS)
        await websocket.prepare(request)
        if len(self._processes) >= MAX_TABS:
            await websocket.send_bytes(message_screen(TOO_MANY))
            await websocket.close()
            return websocket
        process = AppProcess(
            self._arguments,
            lambda key: f"/download/{quote(key, safe='')}?token={self.token}",
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=websocket.close,
            download_manager=self.download_manager,
        )
        self._processes.add(process)
        self._websockets.add(websocket)
        try:
            await process.start(*_terminal(request.query.get("width"), request.query.get("height")))
            async for message in websocket:
                is_text = message.type is WSMsgType.TEXT
                if is_text and not await _pass_on(message, websocket, process):
                    break
        finally:
            self._websockets.discard(websocket)
            await process.stop()
            self._processes.discard(process)
        return websocket

    async def on_shutdown(self, app: web.Application) -> None:
        """Close all tabs' connections: their handlers end their programs."""
        closing = [websocket.close(code=WSCloseCode.GOING_AWAY) for websocket in self._websockets]
        await asyncio.gather(*closing, return_exceptions=True)


async def _pass_on(
    message: WSMessage, websocket: web.WebSocketResponse, process: AppProcess
) -> bool:
    """Pass on one message of textual.js; return False if it is invalid or was not accepted."""
    try:
        kind, *rest = message.json()
        if kind == "stdin":
            return await process.send_bytes(str(rest[0]).encode("utf-8", "replace"))
        if kind == "resize":
            size = _terminal(rest[0]["width"], rest[0]["height"])
            return await process.send_meta({"type": "resize", **size._asdict()})
        if kind == "ping":
            await websocket.send_json(["pong", str(rest[0])[:100]])
        elif kind in ("focus", "blur"):
            return await process.send_meta({"type": kind})
    except (ValueError, TypeError, LookupError, RecursionError):
        return False
    return True


def _terminal(width: object, height: object) -> Terminal:
    """The size as numbers, at most ``LARGEST``; that of a usual terminal if they are invalid."""
    try:
        return Terminal(*map(min, (int(str(width)), int(str(height))), LARGEST))
    except ValueError:
        return Terminal(80, 24)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers.setdefault("Content-Security-Policy", DEFAULT_POLICY)
