"""MCP: the endpoints as tools of agents, by the SDK of the protocol. Loaded where it is asked for (``serve --mcp``).

Gradio has an MCP server, too. Its tools answer with Python's text of a dictionary, make a session of all components for
each call, and carry out the others by requests of the app to itself, which come from 127.0.0.1 whoever the agent is.
These are called directly, for the agent's address, and answer with JSON, as text and as structured content.
"""

import json
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from sbert_app import __version__
from sbert_app.server.endpoint import MOST_AT_ONCE, Call, files_at
from sbert_app.server.endpoints import ENDPOINTS
from sbert_app.services.access import Quota, TooMany, visitor_of
from sbert_app.services.container import Services
from training.errors import UserFacingError, summary_of

MCP = "/gradio_api/mcp"
# So many connections of one address may be open, as streams are held.
MOST_CONNECTIONS = 32
# The tools that change something; a stopped run can be resumed.
CHANGING = ("start_run", "stop_run")


def _mistake(sentence: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=sentence)], isError=True)


class McpServer:
    """The ASGI app of the tools. Its `manager` runs as long as the app does."""

    def __init__(self, services: Services) -> None:
        server: Server[Any, Any] = Server("SBERT Lab", __version__)
        self.manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self.connections = Quota(MOST_CONNECTIONS)
        # Of all tools together: an agent makes many calls side by side.
        calls = Quota(MOST_AT_ONCE)

        @server.list_tools()
        async def list_tools() -> list[Tool]:
            return [
                Tool(
                    name=name,
                    description=endpoint.description,
                    inputSchema=endpoint.body.model_json_schema(),
                    annotations=ToolAnnotations(readOnlyHint=name not in CHANGING, destructiveHint=False),
                )
                for name, endpoint in ENDPOINTS.items()
            ]

        @server.call_tool(validate_input=False)
        async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult:
            request: Any = server.request_context.request
            endpoint = ENDPOINTS.get(name)
            if endpoint is None:
                return _mistake(f"there is no tool {name[:80]!r}; there are {', '.join(ENDPOINTS)}")
            visitor = visitor_of(request)
            call = Call(services, visitor, files=files_at(request, services))
            try:
                with calls.held(visitor):
                    answer = await endpoint.run(call, endpoint.body.parse(arguments))
            except UserFacingError as error:
                return _mistake(summary_of(error))
            # The protocol wants an object.
            answer = answer if isinstance(answer, dict) else {"result": answer}
            text = json.dumps(answer, ensure_ascii=False)
            return CallToolResult(content=[TextContent(type="text", text=text)], structuredContent=answer)

    def routes(self) -> list[BaseRoute]:
        return [Route(path, self) for path in (MCP, f"{MCP}/")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = visitor_of(HTTPConnection(scope))
        try:
            with self.connections.held(visitor):
                await self.manager.handle_request(scope, receive, send)
        except TooMany:
            sentence = f"{MOST_CONNECTIONS} connections to the MCP server are open from your address; wait until one"
            await JSONResponse({"error": f"{sentence} is closed"}, 429, {"Retry-After": "1"})(scope, receive, send)
