"""A picture is a function of its deck, however busy the machine: only when asked for (`make stress`), since it makes it so for a minute."""

import os
import subprocess

import pytest
from test_hostile import HEAD, batch, digest

pytestmark = pytest.mark.browser

DECK = (
    HEAD
    + """# Tides

```ts
const tide: number = 12
```

---

```python {2|3}
def reef(n):
    return n
```

$\\sum_1^n x$

---

```mermaid
graph LR
  A[Warm water] --> B[Bleaching]
```
"""
)


@pytest.mark.skipif(
    "DECKSMITH_STRESS" not in os.environ, reason="make stress keeps every core busy for a minute"
)
def test_twenty_busy_processes_change_no_picture(tmp_path):
    decks = {
        f"{theme}-{turn}": DECK.replace("default", theme)
        for turn in range(5)
        for theme in ("default", "dracula")
    }
    busy = [
        subprocess.Popen(["timeout", "120", "sh", "-c", "while :; do :; done"]) for _ in range(20)
    ]
    try:
        values = batch(tmp_path, decks, jobs=2)
    finally:
        for process in busy:
            process.terminate()  # timeout passes it on
            process.wait()
    for theme in ("default", "dracula"):
        pictures = {
            tuple(digest(tmp_path, value))
            for name, value in values.items()
            if name.startswith(theme)
        }
        assert len(pictures) == 1 and all(len(each) == 3 for each in pictures), theme
