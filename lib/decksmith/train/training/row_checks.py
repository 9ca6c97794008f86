"""Every row of the training data, as tokens, before it is trained: what is trained against what is served.

Its form is checked where it comes in (corpus/chat_data.py). The rows are read once, as a stream.
"""

import itertools
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from decksmith.core import cli, stream
from decksmith.measure.decks import templates
from decksmith.train.training import recipes
from decksmith.train.training.check_report import Findings
from decksmith.train.training.recipes import ChatTemplate

CLOSELY = 20  # rows that are also rendered with null for what they lack

Recipe = dict[str, Any]
Row = dict[str, Any]
Fault = tuple[str, str]  # (rule, message)
Judged = tuple[list[Fault], recipes.Trained | None]  # of a row; and what is trained of it
Runs = list[tuple[bool, str]]  # the tokens of a row as text, by whether they are trained


class Preview(TypedDict):
    """A row to be shown."""

    id: str
    runs: Runs


class Side:
    """The rows of train or validation: what is counted of them, and how a row is checked."""

    def __init__(self, name: str, config: Recipe, template: ChatTemplate | None):
        self.name, self.config, self.template = name, config, template
        self.rows = self.prompted = self.trained = self.reasoned = 0
        self.lengths = array("I")
        self.prompt = templates.system_prompt()

    def check(self, row: Row) -> Judged:
        """(faults of a row, what is trained of it as recipes.example has it, or None)."""
        if "dpo" not in self.config:
            return self._talk(row["messages"], row.get("tools"))
        (faults, made), (more, _) = map(self._talk, recipes.sides(row).values())
        return [*faults, *(fault for fault in more if fault not in faults)], made

    def _talk(self, messages: list[Row], tools: list[Row] | None = None) -> Judged:
        first = messages[0]
        self.prompted += first["role"] == "system" and first["content"].startswith(self.prompt)
        self.reasoned += bool(messages[-1].get("reasoning_content"))
        if self.template is None:
            return [], None
        closely = len(self.lengths) < CLOSELY
        faults, made = _tokens(messages, tools, self.template, self.config, closely)
        if made:
            self.lengths.append(made["length"])
            self.trained += sum(made["mask"])
        return faults, made

    def tokens(self) -> dict[str, float] | None:
        """How long the rows are, in tokens; None where nothing was measured."""
        if not self.lengths:
            return None
        order, total = sorted(self.lengths), sum(self.lengths)
        return {
            "total": total,
            "mean": round(total / len(order), 1),
            "median": order[len(order) // 2],
            "p95": order[len(order) * 95 // 100],
            "max": order[-1],
            "trained": self.trained,
            "share": round(self.trained / total, 4),
            "reasoned": self.reasoned,
        }


def check(side: Side, file: Path, findings: Findings, preview: int) -> list[Preview]:
    """Check all rows of a file as those of a side; returns the first `preview` of them, `[{"id", "runs"}]`."""
    shown: list[Preview] = []
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            side.rows += 1
            if side.rows % 20_000 == 0:
                cli.say(f"{side.name}: {side.rows:,} rows read")
            try:
                row = stream.loads(line)
                faults, made = side.check(row)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                findings.add("json", f"not as sft-config writes it ({error})", file, number)
                continue
            if made and side.template and len(shown) < preview:
                shown.append({"id": row["id"], "runs": _runs(made, side.template)})
            for rule, message in faults:
                findings.add(rule, message, file, number, row["id"])
    return shown


def _tokens(
    messages: list[Row],
    tools: list[Row] | None,
    template: ChatTemplate,
    config: Recipe,
    closely: bool,
) -> Judged:
    """`check` of the tokens of one conversation: its length, and what is trained against what is
    served. `closely`: whether an absent reasoning_content is told from null."""
    kwargs = recipes.switches(config, tools)
    try:
        pieces = recipes.chunks(messages, template, config, tools)
        whole = template.render(messages, **kwargs)
        served = template.render(messages[:-1], add_generation_prompt=True, **kwargs)
        filled = whole
        if closely:
            nulls = [{"reasoning_content": None, **message} for message in messages]
            filled = template.render(nulls, **kwargs)
    except cli.BadData as error:
        return [("template-refuses", str(error))], None
    made = recipes.assemble(pieces, config)
    faults: list[Fault] = []
    calls = [call["function"]["name"] for turn in messages for call in turn.get("tool_calls", [])]
    calls += [tool["function"]["name"] for tool in tools or []]
    if absent := next((name for name in calls if name not in whole), None):
        faults.append(("tools", f"the chat template leaves the tool {absent} out"))
    if made["masked_out"]:
        limit = config["policy"]["max_total_sequence_length"]
        faults.append(("too-long", f"{made['length']} tokens, the limit is {limit}"))
    (role, text, _), bos = pieces[0], template.bos
    if "dpo" in config and bos and text.startswith(bos) and not whole.startswith(bos):
        faults.append(("bos", f"the prompt begins with {bos!r}, a server's does not"))
        bare = text.removeprefix(bos)
        pieces[0] = role, bare, template.encode(bare)  # once said is enough
    reasoning = (messages[-1].get("reasoning_content") or "").strip()
    answer = messages[-1]["content"].strip()
    prompts = bool(recipes.get(config, "data.add_generation_prompt"))
    thinks = bool(kwargs.get("enable_thinking", served.rstrip().endswith("<think>")))
    if thinks and prompts and not reasoning:
        faults.append(("reasoning", "no reasoning, and the prompt asks for it"))
    faults += _against_template(pieces, whole, answer, template)
    if prompts or reasoning:
        faults += _against_prompt(pieces, template.encode(served), prompts, template)
    faults += _end(pieces[-1][2], template)
    trained = pieces[-1][1]
    for name, part, wanted in (("answer", answer, True), ("reasoning", reasoning, thinks)):
        if part and (part in trained) != wanted:
            how = "not " if wanted else ""
            faults.append(("trained", f"the {name} is {how}in the trained text"))
    if filled != whole:
        faults.append(("nulls", "with null for an absent reasoning_content the text differs"))
    return faults, made


def _against_template(
    pieces: list[recipes.Piece], whole: str, answer: str, template: ChatTemplate
) -> Iterator[Fault]:
    """Whether the pieces make up the template's rendering, an end of sequence behind it aside, which is one too many where the
    template itself ends the last turn with a special token."""
    text = "".join(piece for _, piece, _ in pieces)
    if text == whole:
        return
    if text == f"{whole}{template.eos}":
        special = template.tokenizer.get_added_tokens_decoder()
        tail = whole[whole.rfind(answer) + len(answer) :]
        if not any(special.get(token) for token in template.encode(tail)):
            return
    at = recipes.common(text, whole)
    ours, theirs = text[at : at + 24], whole[at : at + 24]
    yield "pieces", f"at character {at} {ours!r} is trained where the template has {theirs!r}"


def _against_prompt(
    pieces: list[recipes.Piece], told: list[int], prompts: bool, template: ChatTemplate
) -> Iterator[Fault]:
    """Whether what comes before the trained text is what a server is told, token by token."""
    # With a generation prompt the last piece begins behind it.
    ids = [token for *_, piece in (pieces[:-1] if prompts else pieces) for token in piece]
    begun = ids if prompts else ids[: len(told)]
    if begun != told:
        at = recipes.common(ids, told)
        ours, theirs = template.decode(ids[at : at + 1]), template.decode(told[at : at + 1])
        yield "prompt", f"token {at} is {ours!r}, in a server's prompt {theirs!r}"


def _end(ids: list[int], template: ChatTemplate) -> Iterator[Fault]:
    """Whether the trained text ends once with a token at which a server stops."""
    stops = template.stops()
    if not stops:
        return
    ends = [index for index, token in enumerate(ids) if token in stops]
    if not ends:
        yield "end", "no token at which a server stops is trained"
    elif after := template.decode(ids[ends[0] + 1 :]).strip():
        yield "end", f"{after[:24]!r} is trained after the first token at which a server stops"


def _runs(made: recipes.Trained, template: ChatTemplate) -> Runs:
    pairs = zip(made["mask"], made["ids"], strict=True)
    runs = itertools.groupby(pairs, key=lambda pair: bool(pair[0]))
    return [(trained, template.decode([token for _, token in run])) for trained, run in runs]
