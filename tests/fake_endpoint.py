"""An OpenAI-compatible server on this machine that plays a script of good and bad behaviour."""

import json
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[["Handler"], None]


class Server(ThreadingHTTPServer):
    """Answers each request with the next act, the last one for ever, and keeps what it was sent."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts: list[Act] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the play."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.keys.append(self.headers["Authorization"])
        acts = self.server.acts
        (acts.pop(0) if len(acts) > 1 else acts[0])(self)

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None: ...


def chat(content: Any = "hello", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 3}, **more}


def ok(content: Any = "hello", **more: Any) -> Act:
    return lambda handler: handler.reply(200, chat(content, **more))


def fail(status: int, message: str = "", **headers: str) -> Act:
    return lambda handler: handler.reply(status, {"error": {"message": message}}, {k.replace("_", "-"): v for k, v in headers.items()})


def drop(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def half(handler: Handler) -> None:
    handler.reply(200, b'{"choices": [', {"Content-Length": "1000"})
    handler.connection.shutdown(socket.SHUT_RDWR)


def slow(handler: Handler) -> None:
    time.sleep(0.5)
    handler.reply(200, chat())


def refusing(*unknown: str) -> Act:
    """A server that does not know some fields, or some values of response_format."""

    def act(handler: Handler) -> None:
        body = handler.server.bodies[-1]
        found = body.get("response_format", {}).get("type")
        if found in unknown:
            handler.reply(400, {"error": {"message": f"response_format type {found} is not supported"}})
        elif "max_tokens" in unknown and "max_tokens" in body:
            handler.reply(400, {"error": {"message": "'max_tokens' is not supported: use 'max_completion_tokens'"}})
        elif left := [name for name in unknown if name in body]:
            handler.reply(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", left[0]]}]})
        else:
            handler.reply(200, chat())

    return act
