"""A reader that follows rules, in place of a language model, for tests/reward_attack.py: an endpoint that deck-judge asks.

It knows for each request a deck that answers it well, and what that deck says is what it holds for true. A claim is a line of the
good deck; a deck tells it where a line has its words in their order, and its figures, under a heading like its own. So it takes no
other wording for an answer, which a model would: it stands in for a reader who cannot be talked round, and says nothing about how
well a model reads.
"""

import json
import re
import threading
from difflib import SequenceMatcher
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CLAIMS = 16
LIKE = 0.75  # of a claim's words, in its order
SOME = 4  # lines of words that the good deck does not have, or so many other figures: a deck that talks of other things, or falsely


def words(text):
    return re.findall(r"\w+", text.casefold())


def lines(slide):
    """(title, other lines) of a slide as the judge is shown it."""
    said = [line for line in slide.split("\n") if line.strip() and not line.startswith("[shows:")]
    return (said[0] if said else ""), said[1:]


class Reader:
    """What the good deck of one request says, by its slides' texts."""

    def __init__(self, slides, checklist):
        self.claims = []  # (number of the slide, its title's words, the claim's words)
        for n, slide in enumerate(slides):
            title, rest = lines(slide)
            long = [said for line in rest if len(said := words(line)) >= 4]
            self.claims += [(n, set(words(title)), said) for said in long]
        step = max(1, len(self.claims) / CLAIMS)
        self.asked = [
            self.claims[int(k * step)] for k in range(min(CLAIMS, int(len(self.claims) / step)))
        ]
        self.vocabulary = {word for slide in slides for word in words(slide)}
        self.checklist = checklist

    def told(self, claim, shown):
        """(the slide, the line) that tells a claim; None where none does."""
        _, heading, said = claim
        for n, slide in shown.items():
            title, rest = lines(slide)
            if heading and len(heading & set(words(title))) * 2 < len(heading):
                continue
            for line in rest:
                found = words(line)
                if len(found) > 2 * len(said):
                    continue
                same = SequenceMatcher(None, said, found, autojunk=False).get_matching_blocks()
                figures = {word for word in said if word.isdigit()} == {
                    w for w in found if w.isdigit()
                }
                if figures and sum(block.size for block in same) >= LIKE * len(said):
                    return n, line
        return None

    def reply(self, shown, items):
        """The reply to a deck's texts by slide number, in the form of assets/schemas/judge-text.json."""
        found = [self.told(claim, shown) for claim in self.asked]
        share = sum(one is not None for one in found) / len(found)
        said = [words(line) for slide in shown.values() for line in slide.split("\n")]
        aliens = sum(
            len(one) >= 3 and 2 * sum(w in self.vocabulary for w in one) < len(one) for one in said
        )
        figures = {word for one in said for word in one if len(word) > 1 and word.isdigit()}
        idle = aliens >= SOME or len(figures - self.vocabulary) >= SOME
        homeless = [claim for claim, one in zip(self.asked, found, strict=True) if not one]
        astray = sum(self.told((0, set(), claim[2]), shown) is not None for claim in homeless)
        places = [one[0] for one in found if one]
        turned = sum(b < a for a, b in zip(places, places[1:], strict=False))
        first = min(shown)

        def mark(score):
            return {
                "why": "by rule",
                "evidence": [{"slide": first, "seen": "its lines"}],
                "score": score,
            }

        asked = [
            {
                "what": " ".join(claim[2]),
                "yes": bool(one),
                "slide": one and one[0],
                "quote": one and " ".join(one[1].split()[:12]),
            }
            for claim, one in zip(self.asked, found, strict=True)
        ]
        yes = share >= 0.5
        return {
            "asked": asked,
            "content": mark(min(2, round(1 + 4 * share)) if idle else round(1 + 4 * share)),
            "coherence": mark(1 if turned > len(places) / 4 or astray >= 3 else 4),
            "observations": [],
            "checklist": [
                {"id": item, "yes": yes, "slide": first if yes else None} for item in items
            ],
        }


class Served:
    """An endpoint on loopback whose model is Readers by their request: `with Served({request: reader}) as url`."""

    def __init__(self, readers):
        class Answers(BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                parts = [part["text"] for part in asked["messages"][1]["content"]]
                request = re.search(r"(?s)<request>\n(.*?)\n</request>", parts[0])[1]
                slides = [re.fullmatch(r"(?s)Slide (\d+):\n(.*)", part) for part in parts[1:-1]]
                shown = {int(m[1]): m[2] for m in slides if m}
                items = re.findall(r"(?m)^(c\d+): ", parts[0].partition("The checklist:")[2])
                said = readers[request].reply(shown or {1: ""}, items)
                answer = {
                    "message": {"role": "assistant", "content": json.dumps(said)},
                    "finish_reason": "stop",
                }
                usage = {
                    "prompt_tokens": sum(map(len, parts)) // 4,
                    "completion_tokens": len(json.dumps(said)) // 4,
                }
                body = json.dumps({"choices": [answer], "usage": usage}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
