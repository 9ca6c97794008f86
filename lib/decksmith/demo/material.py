"""A document that a visitor brings: its text, cut to what a small model can read beside the request.

A PDF is read in a process of its own with little time and memory: it may come from anybody.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import PurePath
from typing import Any

BUDGET = 12_000  # characters of a document that a model is given: 3,000 tokens or so
LARGEST = 5_000_000  # bytes of a document
SECONDS, MEMORY = 20, 1 << 30  # for reading a PDF
KINDS = (".md", ".txt", ".pdf")
# Pages beyond the budget are counted and not read.
_READ_PDF = f"""
import io, json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from pypdf import PdfReader
pages, size = [], 0
reader = PdfReader(io.BytesIO(sys.stdin.buffer.read()))
for page in reader.pages:
    pages.append(page.extract_text())
    size += len(pages[-1])
    if size > {BUDGET}:
        break
print(json.dumps({{"text": "\\n\\n".join(pages), "read": len(pages), "pages": len(reader.pages)}}))
"""


class NotRead(ValueError):
    """A document that cannot be used; the words say why."""


async def read(name: str, data: bytes) -> dict[str, Any]:
    """`{"name", "text", "cut"}` of a document: at most BUDGET characters of it, and a sentence about what was cut (or
    None). Raises NotRead."""
    kind = PurePath(name).suffix.lower()
    if kind not in KINDS:
        raise NotRead(f"{name} is no document that is read here; give one of {', '.join(KINDS)}")
    if len(data) > LARGEST:
        raise NotRead(
            f"{name} has {len(data) / 1e6:.1f} MB; at most {LARGEST // 1_000_000} are read"
        )
    unread = ""
    if kind == ".pdf":
        found = await _pdf(name, data)
        text = found["text"]
        if found["read"] < found["pages"]:
            unread = f" on the first {found['read']} of {found['pages']} pages"
    else:
        text = _decoded(name, data)
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise NotRead(f"{name} has no text" + (" (a scanned page is a picture)" * (kind == ".pdf")))
    used = _beginning(text)
    cut = None
    if unread or len(used) < len(text):
        cut = f"The first {len(used):,} of {len(text):,} characters{unread} are used; the rest was left out."
    return {"name": PurePath(name).name, "text": used, "cut": cut}


def _decoded(name: str, data: bytes) -> str:
    if b"\0" in data:
        raise NotRead(f"{name} is no text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _beginning(text: str) -> str:
    """As much as the budget takes, up to the end of a paragraph or at least of a word."""
    if len(text) <= BUDGET:
        return text
    head = text[:BUDGET]
    ends = [head.rfind(mark) for mark in ("\n\n", "\n", " ")]
    return head[: next((end for end in ends if end > BUDGET // 2), BUDGET)].rstrip()


async def _pdf(name: str, data: bytes) -> dict[str, Any]:
    reader = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _READ_PDF,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONNOUSERSITE": "1"},
    )
    try:
        out, _ = await asyncio.wait_for(reader.communicate(data), 3 * SECONDS)
    except TimeoutError:
        out = b""
    finally:
        if reader.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                reader.kill()
            await reader.wait()
    if reader.returncode != 0 or not out:
        raise NotRead(f"{name} cannot be read: it is no PDF, is locked, or is too complicated")
    return dict(json.loads(out))
