"""The web server of the dashboard: the page, its files, and what the page asks for again and again.

Everything is read by GET, and nothing can be changed. The page has no script or style in its HTML, and asks this server
alone. A server that other machines can reach asks for a token, which a browser gets by the address that is printed.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from rainbow_iqn_apex.environments.registry import task_name
from rainbow_iqn_apex.memory.broker.leases import printable, this_host
from rainbow_iqn_apex.monitoring.metrics import PRIORITY_BOUNDS
from rainbow_iqn_apex.monitoring.overview import Overview
from rainbow_iqn_apex.monitoring.view_model import content_of
from rainbow_iqn_apex.programs.dashboard.results import Results
from rainbow_iqn_apex.programs.dashboard.watcher import LastOverview, Watcher, happenings
from rainbow_iqn_apex.saber.results.task import Task

_STATIC = Path(__file__).with_name("static")
_COOKIE = "dashboard_token_"  # and the port, as a browser sends a cookie to all ports of a host
_STOP_S = 2  # for answers under way
_HEADERS_S = 10.0  # for the headers of a request
_MOST_CONNECTIONS = 100  # a browser has six; many processes may open 256 files
_BACKLOG = 16  # connections that are accepted at once
_MOST_NAMES = 30  # metrics in one request
_SHOWN_EVENTS = 60
_MAX_TEXT = 300  # characters
_MAX_PROBLEM = 1000  # with a server's words, and what to do
_MOST_STEPS = 2**53  # that a browser counts exactly
_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data: blob:; media-src blob:; "
    "style-src 'self' 'unsafe-inline'; "  # plotly sets styles of its own
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FRESH = {"Cache-Control": "no-store"}
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Connection(H11Protocol):
    """A browser's connection: one of so many, and closed if the headers of a request do not come in time.

    Of too many connections the one that has waited longest for a request goes, else the oldest. Browsers connect again.
    A client that opens connections without asking anything loses those, and shuts out no one.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0  # by the loop's clock, when it was made or had its last answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Make room for it, and wait for its first request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > _MOST_CONNECTIONS:
            others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
            last = min(others, key=lambda other: (other._is_answered, other._since))
            self.connections.discard(last)  # which is lost later, and other new ones may come before
            last.transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(_HEADERS_S, self._give_up)
        self._since = self.loop.time()

    def _give_up(self) -> None:
        if not self._is_answered:
            self.transport.abort()


def web_server(app: Any) -> uvicorn.Server:
    """Return the server of an application, to be run with a socket."""
    settings: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": _STOP_S, "server_header": False}
    return uvicorn.Server(uvicorn.Config(app, http=Connection, backlog=_BACKLOG, **settings))


class Pages:
    """Answers the browser's requests, each in a thread: files and Redis may take a moment."""

    def __init__(self, watcher: Watcher, results: Results) -> None:
        self._watcher = watcher
        self._results = results
        self._plotly = get_plotlyjs().encode()

    def routes(self) -> list[Route | Mount]:
        """Return the addresses."""
        return [
            Route("/", self._page),
            Route("/static/plotly.js", self._plotly_script),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route("/api/now", self._now),
            Route("/api/scores", self._scores),
            Route("/api/metrics", self._metrics),
            Route("/api/view", self._view),
            Route("/api/film", self._film),
        ]

    def _page(self, _: Request) -> Response:
        return FileResponse(_STATIC / "index.html")

    def _plotly_script(self, _: Request) -> Response:
        return Response(self._plotly, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    def _now(self, request: Request) -> Response:
        return _json(self._present(request.query_params.get("run", "")))

    def _scores(self, request: Request) -> Response:
        return _json(self._results.scores(request.query_params.getlist("run")))

    def _metrics(self, request: Request) -> Response:
        names = request.query_params.getlist("name")[:_MOST_NAMES]
        return _json(self._results.metrics(request.query_params.get("run", ""), names))

    def _view(self, request: Request) -> Response:
        asked = re.fullmatch("(evaluation )?actor ([0-9]{1,9})", request.query_params.get("who", ""))
        if not asked:
            return PlainTextResponse("who: expected 'actor 3' or 'evaluation actor 3'", 400)
        overview = self._watcher.last.overview
        return _json(self._watcher.views.ask(overview, int(asked[2]), evaluation=bool(asked[1])))

    def _film(self, request: Request) -> Response:
        run, place = (request.query_params.get(name, "") for name in ("run", "place"))
        video = self._results.film(run, place)
        return Response(video, 200, _FRESH, "video/webm") if video else PlainTextResponse("no such video", 404)

    def _present(self, asked: str) -> dict[str, Any]:
        """Return the state of the run on the Redis server and of a run's files, its own unless another is asked for."""
        last = self._watcher.last
        titles = self._results.titles()
        own = self._own_files(last.overview)
        title = asked if asked in titles else own or self._results.newest()
        own_events = self._results.events(own if last.overview else title)[-_SHOWN_EVENTS:]
        events = self._watcher.happenings.newest(happenings("learner", own_events))[:_SHOWN_EVENTS]
        return present(last) | {
            "files": {
                "runs": titles,
                "shown": title,
                "own": own,
                "stamp": self._results.stamp(title) if title else "",
                "facts": self._results.facts(title),
                "films": self._results.films(title),
            },
            "events": [event._asdict() | {"text": text(event.text)} for event in events],
        }

    def _own_files(self, overview: Overview | None) -> str:
        """Return the run of the results folder that is the one on the Redis server; empty if none is."""
        owner = overview.record.owner if overview else None
        if not overview or not owner or owner.host != this_host():
            return ""
        return self._results.title_in(Path(owner.folder), task_of(overview))


def present(last: LastOverview) -> dict[str, Any]:
    """Return what Redis has shown of the run, as plain values for JSON."""
    shown = {"problem": text(last.problem, _MAX_PROBLEM), "at": last.at}
    if (overview := last.overview) is None:
        return shown
    learner = overview.learner.report
    content = content_of(overview)
    counts = learner.histograms.get("buffer/priorities") if learner else None
    content["processes"] = [
        line | {"title": process.title, "began": process.report.began if process.report else None}
        for line, process in zip(content["processes"], overview.processes, strict=True)
    ]
    content["run"] = _run(overview)
    content["priorities"] = {"bounds": PRIORITY_BOUNDS, "counts": counts} if counts else None
    return shown | content


def _run(overview: Overview) -> dict[str, Any]:
    record = overview.record
    t_max = overview.setting("T_max")
    is_count = isinstance(t_max, int | float) and 0 <= t_max <= _MOST_STEPS  # not NaN, either
    return {
        "name": overview.name,
        "status": overview.status,
        "is_over": record.over or overview.status == "abandoned",
        "owner": text(record.owner) if record.owner else "",
        "agent": text(overview.setting("agent") or ""),
        "task": text(Task(task_of(overview), str(overview.setting("env") or "atari")).title),
        "t_max": int(t_max) if is_count else None,
    }


def task_of(overview: Overview) -> str:
    """Return the task in the names of the run's files."""
    return task_name(str(overview.setting("env") or "atari"), str(overview.setting("game") or ""))


def text(value: object, most: int = _MAX_TEXT) -> str:
    """Return a text that any peer may have written, short and printable."""
    return printable(str(value)[:most])


def _json(content: dict[str, Any]) -> Response:
    return JSONResponse(content, headers=_FRESH)


def application(pages: Pages, hosts: list[str], token: str) -> Starlette:
    """Return the server; it answers under these host names alone if there are any, and asks for the token if any.

    A foreign page, whose name leads to this machine, may so not read from a server without a token.
    """
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts)] if hosts else []
    middleware += [Middleware(Guard, token=token), Middleware(GZipMiddleware, minimum_size=2000, compresslevel=4)]
    return Starlette(routes=pages.routes(), middleware=middleware)


class Guard:
    """Lets in who brings the token, in the address once and then in a cookie, and adds headers to all answers."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        cookie = f"{_COOKIE}{request.scope['server'][1]}"
        if not self._token or self._matches(request.cookies.get(cookie, "")):
            return None
        if self._matches(request.query_params.get("token", "")):
            response: Response = RedirectResponse("/", 303)  # without the token, which a history would keep
            response.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return response
        return PlainTextResponse("Open the address that dashboard.py has printed: it holds a token.\n", 403)

    def _matches(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())
