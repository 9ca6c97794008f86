"""Tools of an MCP server: a program that is started once for a run and speaks the Model Context
Protocol on stdin and stdout. Needs `make .venv/.mcp`.

What it does is outside of the sandbox: whoever names it answers for it.
"""

import asyncio
import shlex
from datetime import timedelta
from typing import Any

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.core.stream import Fault
from decksmith.models.records import Function, Tool

LATE = 408  # the code of an McpError for a call that took too long
GONE = -32000  # and for one whose server ended


class ToolServer:
    """The server of one run. `tools`, in OpenAI's form, are there after `open`."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.tools: list[Tool] = []
        self.session: Any = None
        self.holders: list[asyncio.Task[None]] = []  # the last one holds the server that is used
        self.ready, self.ended = asyncio.Event(), asyncio.Event()  # of that server

    async def open(self) -> None:
        """Start the server unless it runs. Raises cli.Missing without the package mcp,
        cli.BadConfig where the command is no MCP server."""
        if not self.holders or self.ended.is_set():
            self.ready, self.ended = asyncio.Event(), asyncio.Event()
            self.holders.append(asyncio.create_task(self._hold(self.ready, self.ended)))
        holder, ready = self.holders[-1], asyncio.create_task(self.ready.wait())
        await asyncio.wait([ready, holder], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if holder.done():
            holder.result()

    async def use(self, name: str, arguments: Record, seconds: float) -> str:
        """What a tool says: its texts, a line each, behind "error: " where it failed. Raises Fault
        infra where the server ended meanwhile; the next call starts it again."""
        from mcp.shared.exceptions import McpError

        await self.open()
        session, ended, limit = self.session, self.ended, timedelta(seconds=seconds)
        try:
            found = await session.call_tool(name, arguments, read_timeout_seconds=limit)
        except McpError as error:
            if error.error.code == LATE:
                return f"error: timed out after {seconds:g} s"
            if error.error.code != GONE:
                return f"error: {error}"
            ended.set()
            raise Fault("infra", "mcp", f"{self.command}: the server of tools ended") from None
        parts = [getattr(part, "text", f"({part.type}, not shown)") for part in found.content]
        return ("error: " if found.isError else "") + "\n".join(parts)

    async def close(self) -> None:
        """End the server."""
        self.ended.set()
        await asyncio.gather(*self.holders, return_exceptions=True)

    async def _hold(self, ready: asyncio.Event, ended: asyncio.Event) -> None:
        """The life of a server: the package wants it begun and ended in one task."""
        try:
            import mcp
            from mcp.client.stdio import stdio_client
        except ImportError:
            raise cli.Missing("--mcp needs the package mcp; run: make .venv/.mcp") from None
        try:
            command, *more = shlex.split(self.command)
            place = mcp.StdioServerParameters(command=command, args=more)
            async with stdio_client(place) as pipes, mcp.ClientSession(*pipes) as session:
                await session.initialize()
                self.tools = [_offered(tool) for tool in (await session.list_tools()).tools]
                self.session = session
                ready.set()
                await ended.wait()
        except Exception as error:
            said = f"--mcp: {self.command!r} does not answer as an MCP server does: {error!r}"
            raise cli.BadConfig(said) from None


def _offered(tool: Any) -> Tool:
    """A tool of the server in OpenAI's form."""
    function: Function = {"name": tool.name, "parameters": tool.inputSchema}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}
