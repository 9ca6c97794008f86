"""What a vision judge is asked about and answers in tests."""

from PIL import Image


def dimension(score, slide=1):
    return {
        "why": f"It is a {score}.",
        "evidence": [{"slide": slide, "seen": "a heading"}],
        "score": score,
    }


def answer(**changes):
    return {
        "content": dimension(4),
        "design": dimension(3, 2),
        "coherence": dimension(5, 3),
        "observations": [],
        "checklist": [
            {"id": "c1", "yes": True, "slide": 2},
            {"id": "c2", "yes": False, "slide": None},
        ],
        **changes,
    }


def make(run, slides, size=(196, 110)):
    paths = [f"p1/slides/{n:02}.png" for n in range(1, slides + 1)]
    for n, path in enumerate(paths):
        (run / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (40 + n, 90, 120)).save(run / path)
    return {
        "id": "p1",
        "messages": [
            {"role": "system", "content": "SYSTEM OF THE MODEL"},
            {"role": "user", "content": "Three slides on reefs"},
        ],
        "asks": {"slides": 3},
        "checklist": [
            {"id": "c1", "ask": "Shows a map", "match": ["secret match"]},
            {"id": "c2", "ask": "Names a year"},
        ],
        "gen": {"text": "THE MARKDOWN", "model": {"name": "THE MODEL"}},
        "deck": {"path": "p1/deck.md"},
        "render": {"slides": paths, "expected": slides, "errors": [], "xray": []},
    }
