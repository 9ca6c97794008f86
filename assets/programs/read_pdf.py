"""python3 read_pdf.py CHARACTERS SECONDS BYTES, a PDF on stdin: its pages as JSON, as many as have so many characters."""

import io
import json
import resource
import sys

most, seconds, memory = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from pypdf import PdfReader  # noqa: E402

pages, size = [], 0
reader = PdfReader(io.BytesIO(sys.stdin.buffer.read()))
for page in reader.pages:
    pages.append(page.extract_text())
    size += len(pages[-1])
    if size > most:
        break
print(json.dumps({"pages": pages, "of": len(reader.pages)}))
