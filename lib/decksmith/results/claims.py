"""What may be said about several runs. Every sentence that separates or ranks models is written here, by a test.

The headline is Overall under the floor, chosen before anybody looked; its family is the pairs of runs. All other measures and
accountings are secondary: their p-values are corrected together, over pairs and measures of one accounting.
"""

import itertools
import json
import math

from decksmith.core import cli, stream
from decksmith.core.records import prompt_of
from decksmith.results import stats
from decksmith.results.runs import (
    HAPPENED,
    NOTES,
    caption,
    columns,
    domains,
    figure_text,
    interval,
    judged_by,
    markdown_table,
    scales,
    table,
    titles,
    unmatched,
)
from decksmith.results.verify import few

ACCOUNTINGS = {"floor": "floor", "renderable": "renderable only", "scored": "both scored"}
HEADLINE = ("floor", "overall")
LEVEL = 1 - stats.LEVEL
LIMITS = {"excluded": 0.01, "truncated": 0.05}  # of runs whose protocol names none


def compare(runs, sequential=False):
    """The comparison as data: each run's summary, how the models were asked, every pair under every accounting, the claims and rank
    ranges they allow, and the caveats. sequential: the headline's intervals and tests are those of a confidence sequence, which may be
    looked at at any time. Raises cli.BadData naming the ids when the runs have other prompts or samples: they are no pair."""
    if lacking := unmatched(runs):
        raise cli.BadData(
            f"{_listed(run['label'] for run in runs)} cannot be compared: {lacking}. What a model failed at is a row too "
            "(docs/records.md): have these added, or compare what all have: run-compare --common"
        )
    pairs = _pairs(runs)
    if sequential:
        _in_sequence(runs, pairs)
    headlines = [pair for pair in pairs if (pair["accounting"], pair["measure"]) == HEADLINE]
    return {
        "judge": judged_by(runs),
        "caption": caption(runs),
        "titles": titles(runs),
        "protocol": runs[0]["protocol"].get("hash"),
        "unshipped": runs[0]["unshipped"],
        "left_out": {run["label"]: run["left_out"] for run in runs if run["left_out"] is not None},
        "asked": asked(runs),
        "runs": [
            {"run": str(run["path"]), "label": run["label"], **run["summary"]} for run in runs
        ],
        "caveats": caveats(runs),
        "unsettled": bool(headlines) and all(pair["open"] for pair in headlines),
        "headlines": [pair["sentence"] for pair in headlines],
        "ranks": ranks([run["label"] for run in runs], headlines),
        "pairs": pairs,
    }


def _listed(labels):
    *first, last = labels
    return f"{', '.join(first)} and {last}" if first else last


def _pairs(runs):
    """Every pair of runs under every accounting and measure, with its verdict and sentence."""
    import numpy

    prompts = sorted({prompt_of(record) for run in runs for record in run["records"]})
    place = {prompt: index for index, prompt in enumerate(prompts)}

    def column(values):
        cells = numpy.full(len(prompts), numpy.nan)
        cells[[place[prompt] for prompt in values]] = list(values.values())
        return cells

    tables = {
        (run["order"], accounting): columns(run["records"], accounting)
        for run in runs
        for accounting in ("floor", "renderable")
    }
    bounded = {
        (run["order"], end): columns(run["records"], "floor", excluded=end)
        for run in runs
        for end in (0, 1)
    }
    found, left, right = [], [], []
    for a, b in itertools.combinations(runs, 2):
        for accounting in ACCOUNTINGS:
            ours, theirs = (
                tables[run["order"], "floor" if accounting == "floor" else "renderable"]
                for run in (a, b)
            )
            for measure in [measure for measure in ours if measure in theirs]:
                x, y = column(ours[measure]), column(theirs[measure])
                if accounting != "renderable":
                    x, y = (
                        numpy.where(numpy.isnan(y), numpy.nan, x),
                        numpy.where(numpy.isnan(x), numpy.nan, y),
                    )
                sizes = [int((~numpy.isnan(values)).sum()) for values in (x, y)]
                found.append(
                    {
                        "a": a["label"],
                        "b": b["label"],
                        "accounting": accounting,
                        "measure": measure,
                        "on": _on(runs, sizes, len(prompts), accounting, measure),
                        "cut": _cut(a, b),
                        "lost": _lost(a, b) if accounting == "floor" else 0,
                    }
                )
                left.append(x)
                right.append(y)
    names = {run["label"]: run for run in runs}
    ends = [
        pair
        for pair in found
        if pair["accounting"] == "floor" and any(_excluded(names[pair[side]]) for side in "ab")
    ]
    for pair, end in itertools.product(
        ends, (0, 1)
    ):  # the excluded at their worst for a, then at their best
        left.append(column(bounded[names[pair["a"]]["order"], end][pair["measure"]]))
        right.append(column(bounded[names[pair["b"]]["order"], 1 - end][pair["measure"]]))
    if not found:
        return []
    measures = [pair["measure"] for pair in [*found, *(pair for pair in ends for _ in (0, 1))]]
    asked_for = domains(record for run in runs for record in run["records"])
    results = stats.differences(
        numpy.stack(left, axis=1),
        numpy.stack(right, axis=1),
        scales(measures),
        [asked_for[p] for p in prompts],
    )
    values = [
        {
            name: stats.number(column[index], 6 if name == "p" else 4)
            for name, column in results.items()
        }
        for index in range(len(left))
    ]
    for pair, value in zip(found, values, strict=False):
        pair["difference"] = {
            **value,
            **{name: int(value[name]) for name in ("n", "clusters", "wins", "ties", "losses")},
        }
    for pair, least, most in zip(
        ends, values[len(found) :: 2], values[len(found) + 1 :: 2], strict=True
    ):
        pair["bounds"] = {
            "least": least["mean"],
            "most": most["mean"],
            "lo": least["lo"],
            "hi": most["hi"],
        }
    for family in {
        (pair["accounting"], (pair["accounting"], pair["measure"]) == HEADLINE) for pair in found
    }:
        members = [
            pair
            for pair in found
            if (pair["accounting"], (pair["accounting"], pair["measure"]) == HEADLINE) == family
        ]
        adjusted = stats.holm(
            [
                numpy.nan if pair["difference"]["p"] is None else pair["difference"]["p"]
                for pair in members
            ]
        )
        for pair, p in zip(members, adjusted, strict=True):
            pair["p_holm"], pair["family"] = stats.number(p, 6), len(members)
    _say(found)
    return found


def _say(pairs):
    """Give each pair its verdict and its sentence."""
    for pair in pairs:
        pair["verdict"], pair["sentence"] = verdict(pair)
        pair["open"] = pair["verdict"] == "inconclusive" and bool(pair["cut"] or pair["lost"])
    for pair in pairs:
        if (pair["accounting"], pair["measure"]) == HEADLINE and pair["verdict"] == "beats":
            pair["sentence"] += _without_the_scan(pair, pairs)


def in_order(a, b, excluded=None):
    """The headline's values of two runs, `[[prompt, a's, b's]]`, in an order that has nothing to do with them and is the same for ever.

    excluded: 0 puts what `a` lost at its worst and what `b` lost at its best, 1 the reverse; otherwise both are left out.
    """
    accounting, measure = HEADLINE
    ours = columns(a["records"], accounting, excluded).get(measure, {})
    theirs = columns(b["records"], accounting, None if excluded is None else 1 - excluded).get(
        measure, {}
    )
    return [
        [prompt, ours[prompt], theirs[prompt]]
        for prompt in sorted(ours.keys() & theirs.keys(), key=stream.shuffled)
    ]


def _in_sequence(runs, pairs):
    """Put confidence sequences in the place of the headline's intervals and tests, and say what they say."""
    from decksmith.results import sequential as betting

    low, high = -4, 4  # of a difference of two scores from 1 to 5
    named, headlines = (
        {run["label"]: run for run in runs},
        [pair for pair in pairs if (pair["accounting"], pair["measure"]) == HEADLINE],
    )

    def found(pair, excluded=None):
        values = [x - y for _, x, y in in_order(named[pair["a"]], named[pair["b"]], excluded)]
        interval = betting.interval(values, low, high, stats.LEVEL) if values else {}
        return {
            name: stats.number(value, 6 if name == "p" else 4) for name, value in interval.items()
        }

    for pair in headlines:
        pair["by"], pair["difference"] = (
            "confidence sequence",
            {**pair["difference"], **found(pair), "sd": None},
        )
        if "bounds" in pair:
            least, most = found(pair, 0), found(pair, 1)
            pair["bounds"] = {
                "least": least["mean"],
                "most": most["mean"],
                "lo": least["lo"],
                "hi": most["hi"],
            }
    adjusted = stats.holm(
        [
            float("nan") if pair["difference"]["p"] is None else pair["difference"]["p"]
            for pair in headlines
        ]
    )
    for pair, p in zip(headlines, adjusted, strict=True):
        pair["p_holm"] = stats.number(p, 6)
    _say(pairs)


def _on(runs, sizes, prompts, accounting, measure):
    """On what a pair was compared, as the end of a clause: ` on 29 of 30 prompts, Overall, floor`."""
    common = runs[0]["left_out"] is not None
    n = str(sizes[0]) if sizes[0] == sizes[1] else f"{sizes[0]} and {sizes[1]}"
    of = f" of {prompts}" if min(sizes) < prompts else ""
    plural = "" if sizes == [1, 1] and not of else "s"
    changed = ", not the shipped protocol" if runs[0]["unshipped"] else ""
    return f" on {n}{of}{' common' if common else ''} prompt{plural}, {titles(runs).get(measure, measure)}, {ACCOUNTINGS[accounting]}{changed}"


def _without_the_scan(pair, found):
    """What the same pair's Judge only says, where it does not say the same: VisCraft counts features and can be stuffed."""
    for other in found:
        if (other["a"], other["b"], other["accounting"], other["measure"]) == (
            pair["a"],
            pair["b"],
            "floor",
            "judge_only",
        ):
            found, turn = other["difference"], 1 if pair["difference"]["mean"] > 0 else -1
            if found["lo"] is None or found["lo"] <= 0 <= found["hi"]:
                return f"; without VisCraft the two are not separated ({figure_text(turn * (found['mean'] or 0))})"
            if turn * found["mean"] < 0:
                return f"; without VisCraft the difference turns round ({figure_text(turn * found['mean'])})"
    return ""


def verdict(pair):
    """What may be said about one pair: `(verdict, sentence)`; the verdict is "beats", "not separated" or "inconclusive".

    "beats" needs an interval without 0, a corrected p of at most 5 %, and that no value the excluded decks could have had
    brings the interval to 0. Where more decks were lost (`lost`) or cut off (`cut`) than the protocol allows, the pair says only
    what its bounds settle. `on` says on what the pair was compared; `doubts`, sentences, are others that keep it from separating.
    """
    a, b, found, bounds, on = (
        pair["a"],
        pair["b"],
        pair["difference"],
        pair.get("bounds"),
        pair.get("on", ""),
    )
    n = found["n"]
    if n < stats.FEWEST or found["lo"] is None:
        shared = f"{n} shared prompt{'' if n == 1 else 's'}, at least {stats.FEWEST} are needed"
        shown = f"; difference {figure_text(found['mean'])}" if n else ""
        return "inconclusive", f"{a} and {b}: inconclusive{on} ({shared}{shown})"
    separated, settled = not found["lo"] <= 0 <= found["hi"], True
    doubts = ([pair["cut"]] if pair.get("cut") else []) + pair.get("doubts", [])
    if separated and pair["p_holm"] > LEVEL:
        of = f" corrected over {pair['family']} comparisons" if pair["family"] > 1 else ""
        doubts.append(f"p = {p_text(pair['p_holm'])}{of}")
    if bounds and (separated or pair.get("lost")):
        settled = separated and (bounds["lo"] > 0 if found["mean"] > 0 else bounds["hi"] < 0)
    if not settled:
        doubts.append(
            f"the decks without a score could make it [{figure_text(bounds['lo'])}, {figure_text(bounds['hi'])}]"
        )
    if doubts:
        return (
            "inconclusive",
            f"{a} and {b}: inconclusive{on} (difference {interval(found)}, but {' and '.join(doubts)})",
        )
    if not separated:
        wanted = (
            stats.needed(abs(found["mean"]), found["sd"])
            if found["sd"] and abs(found["mean"]) >= 0.005
            else None
        )
        more = (
            f"; a new sample of about {wanted:,} prompts would tell"
            if wanted and n < wanted <= 100_000
            else ""
        )
        return (
            "not separated",
            f"{a} is not separated from {b}{on} (difference {interval(found)}{more})",
        )
    least = bounds and (bounds["least"] if found["mean"] > 0 else -bounds["most"])
    if found["mean"] < 0:
        a, b, found = (
            b,
            a,
            {**found, "mean": -found["mean"], "lo": -found["hi"], "hi": -found["lo"]},
        )
    still = (
        f"; with the {pair['lost']} lost at their worst still by {figure_text(least)}"
        if pair.get("lost")
        else ""
    )
    return "beats", f"{a} beats {b} by {interval(found)}{on}{still}"


def ranks(labels, headlines):
    """The range of ranks that the headline pairs leave open for each model: `{label: [best, worst]}`, 1 is first."""
    above, below = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
    for pair in headlines:
        if pair["verdict"] == "beats":
            first, second = (
                (pair["a"], pair["b"]) if pair["difference"]["mean"] > 0 else (pair["b"], pair["a"])
            )
            below[first] += 1
            above[second] += 1
    return {label: [1 + above[label], len(labels) - below[label]] for label in labels}


def caveats(runs):
    """Which runs lost or cut off more decks than their protocol allows, one sentence each with its remedy."""
    found = []
    for run in runs:
        n, limits = run["summary"]["n"], _limits(run)
        if (lost := _excluded(run)) > limits["excluded"] * n:
            kinds = ", ".join(
                f"{kind} faults {count}"
                for kind, count in run["summary"]["faults"]["kinds"].items()
                if count and kind != "model"
            )
            found.append(
                f"{run['label']}: {lost} of {n} decks have no score ({kinds}; at most {_share(limits['excluded'])} may); "
                f"{run['remedy']}"
            )
        if (cut := run["summary"]["truncated"]) > limits["truncated"] * n:
            found.append(
                f"{run['label']}: {cut} of {n} replies were cut off at the token limit (at most {_share(limits['truncated'])} "
                "may); raise max_tokens in the protocol's sampling"
            )
    return found


def _limits(run):
    return {**LIMITS, **(run["protocol"].get("claim") or {})}


def _lost(a, b):
    """The decks of two runs without a score, where one of the two lost more than its protocol allows; else 0."""
    over = any(_excluded(run) > _limits(run)["excluded"] * run["summary"]["n"] for run in (a, b))
    return _excluded(a) + _excluded(b) if over else 0


def _cut(a, b):
    """Which of two runs was cut off too often to say anything about it, as a clause, or None."""
    said = [
        f"{run['summary']['truncated']} of {run['summary']['n']} replies of {run['label']} were cut off"
        for run in (a, b)
        if run["summary"]["truncated"] > _limits(run)["truncated"] * run["summary"]["n"]
    ]
    return " and ".join(said) or None


def _share(value):
    return f"{100 * value:g} %"


def _excluded(run):
    return sum(
        count for kind, count in run["summary"]["faults"]["kinds"].items() if kind != "model"
    )


# As text


def markdown(runs, compared):
    """The comparison as markdown, models by their names; the headline comes last."""
    lines = [
        f"{caption(runs)}. Protocol {(runs[0]['protocol'].get('hash') or 'unknown')[:12]}.",
        "",
    ]
    for title, header, rows, note in tables(runs, compared):
        words = {
            "What happened": 1,
            "How far the ranking holds": 1,
            "What swaps two models": 3,
            ASKED: len(header),
        }.get(title, 2)
        lines += [
            f"**{title}**",
            "",
            *markdown_table(header, rows, words),
            "",
            *([note, ""] if note else []),
        ]
    return "\n".join([*lines, *headline(compared)]) + "\n"


def headline(compared):
    """The lines that sum up the comparison: what is claimed, with the range of ranks it leaves open, and under what caveats."""
    lines = []
    if len(compared["runs"]) > 1:
        lines += [
            f"**Headline: {compared['titles']['overall']}, floor**",
            "",
            *(
                f"- {said}"
                for said in [
                    *compared["headlines"],
                    ranked(compared),
                    *(compared.get("looks") or {}).get("said", []),
                ]
            ),
        ]
    if limits := limited(compared):
        lines += [
            *([""] if lines else []),
            "**What limits this**",
            "",
            *(f"- {reason}" for reason in limits),
        ]
    return lines


def limited(compared):
    """What a reader of the headline must know beside it, one sentence each."""
    said = list(compared["caveats"])
    if compared["unshipped"]:
        said.append(
            f"the protocol is not the shipped one: {'; '.join(compared['unshipped'][:3])}{' ..' if compared['unshipped'][3:] else ''}"
        )
    for label, idents in compared["left_out"].items():
        if idents:
            said.append(
                f"{label}: {len(idents)} of its decks are left out, which not all have ({few(idents)})"
            )
    return said


ASKED = "How the models were asked"


def asked(runs):
    """In what the requests to these models differ, `[{"setting", "values": {label: value}}]`; None for a value that was not sent. A run
    whose replies do not say how they were asked has no settings, and no label in the values."""
    known = {run["label"]: _settings(run) for run in runs}
    known = {label: settings for label, settings in known.items() if settings}
    names = sorted({name for settings in known.values() for name in settings})
    found = [
        {
            "setting": name,
            "values": {label: settings.get(name) for label, settings in known.items()},
        }
        for name in names
    ]
    return [
        entry
        for entry in found
        if any(value != next(iter(entry["values"].values())) for value in entry["values"].values())
    ]


def _settings(run):
    """What was sent beside messages and the model's name, and who served it: `{"max_tokens": 1024, "server.engine": "vllm 1"}`."""
    served = {
        f"server.{name}": value
        for name, value in (run["summary"]["model"].get("served") or {}).items()
    }
    return {**run["summary"]["asked"]["parameters"], **served}


def asked_table(runs, compared):
    """How the models were asked as a table of text cells, `(title, header, rows, note)`; a row for each setting that differs."""

    def cell(entry, label):
        if label not in entry["values"]:
            return "unknown"
        value = entry["values"][label]
        return (
            "not set"
            if value is None
            else value
            if isinstance(value, str)
            else json.dumps(value, ensure_ascii=False)
        )

    labels = [run["label"] for run in runs]
    rows = [
        [entry["setting"], *(cell(entry, label) for label in labels)] for entry in compared["asked"]
    ]
    silent = [run["label"] for run in runs if not _settings(run)]
    if not rows:
        rows = [
            ["every setting", *("unknown" if label in silent else "the same" for label in labels)]
        ]
    note = f"What was sent to {_listed(silent)} is not recorded." if silent else ""
    hashes = {run["summary"]["asked"]["sha256"] for run in runs}
    if len(hashes) == 1 and None not in hashes:
        note = "All requests are the same but for the model's name."
    return ASKED, ["Setting", *labels], rows, note


def tables(runs, compared):
    """Every table of a comparison, `[(title, header, rows, note)]`, cells as text."""
    from decksmith.results import checklist, robustness

    happened, scores = table(runs)
    found = [(*happened, HAPPENED)]
    if len(runs) > 1:
        found.append(asked_table(runs, compared))
    found.append((*scores, NOTES))
    if len(runs) > 1:
        found.append((*paired_table(compared), f"{FAMILY} {rule(compared)}"))
    if card := robustness.card(runs, compared["ranks"]):
        ranking, swaps = robustness.tables(card)
        found += [(*ranking, robustness.NOTE), (*swaps, "")]
    families = [checklist.table(runs, kind) for kind in ("item", "feature", "language")]
    return found + [
        (
            *family,
            "Items answered yes with the slide that shows each, and the mean share over prompts."
            if not index
            else "",
        )
        for index, family in enumerate(family for family in families if len(family[2]) > 1)
    ]


def rule(compared):
    """On what the headline's intervals rest, in one sentence."""
    counts = sorted(
        {
            pair["difference"]["clusters"]
            for pair in compared["pairs"]
            if (pair["accounting"], pair["measure"]) == HEADLINE
        }
    )
    return (
        f"Intervals and p of the headline: {' or '.join(map(stats.rule, counts))}."
        if counts
        else ""
    )


SHOWN = [
    ("floor", "overall"),
    ("renderable", "overall"),
    ("scored", "overall"),
    ("floor", "judge_only"),
]
FAMILY = (
    "The headline is the protocol's overall score under the floor. p: the larger of the interval's and the sign-flip permutation test's; corrected by "
    "Holm's method, the headline over the pairs, everything else over pairs and measures of its accounting. d: mean difference over "
    "its standard deviation. Bounds: what the excluded decks could make of the difference. docs/statistics.md has the methods."
)


def paired_table(compared):
    """The pairs as a table of text cells: `(title, header, rows)`."""
    rows = []
    for pair in compared["pairs"]:
        if (pair["accounting"], pair["measure"]) in SHOWN:
            found, bounds = pair["difference"], pair.get("bounds")
            thin = found["n"] < stats.FEWEST
            rows.append(
                [
                    f"{pair['a']} minus {pair['b']}",
                    f"{compared['titles'][pair['measure']]}, {ACCOUNTINGS[pair['accounting']]}",
                    str(found["n"]),
                    figure_text(found["mean"]) if thin and found["n"] else interval(found),
                    f"[{figure_text(bounds['least'])}, {figure_text(bounds['most'])}]"
                    if bounds
                    else "–",
                    "–" if thin else p_text(found["p"]),
                    "–" if thin else p_text(pair["p_holm"]),
                    f"{found['wins']}/{found['ties']}/{found['losses']}",
                    "–" if found["effect"] is None or thin else figure_text(found["effect"]),
                ]
            )
    return (
        "Paired by prompt",
        ["Difference", "Of", "Prompts", "Mean", "Bounds", "p", "p corrected", "Win/tie/loss", "d"],
        rows,
    )


def ranked(compared):
    """The rank ranges in one sentence, models by name."""
    return "Ranks left open by the tests: " + "; ".join(
        f"{label} {rank_text(span)}" for label, span in compared["ranks"].items()
    )


def rank_text(span):
    return str(span[0]) if span[0] == span[1] else f"{span[0]} to {span[1]}"


def difference(compared, a, b, accounting, measure):
    """The difference `a` minus `b` with its verdict, `(None, None)` when the two have nothing to compare."""
    for pair in compared["pairs"]:
        if (pair["accounting"], pair["measure"]) == (accounting, measure) and {
            pair["a"],
            pair["b"],
        } == {a, b}:
            found = pair["difference"]
            turned = (
                found
                if pair["a"] == a
                else {
                    **found,
                    **{
                        key: -value
                        for key, value in (
                            ("mean", found["mean"]),
                            ("lo", found["hi"]),
                            ("hi", found["lo"]),
                        )
                        if value is not None
                    },
                }
            )
            return turned, pair["verdict"]
    return None, None


def p_text(p):
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


# Benchmarks


def benchmark(model, base, entry):
    """What may be said about a model and its base on one benchmark (an entry of metrics.compare): `(verdict, sentence)`.

    The verdict is "worse" where a loss is shown, however small; "better" or "holds" where a loss of more than the margin is ruled
    out; "cannot tell" where neither is so, and "refused" where the two cannot be compared.
    """
    name, found = entry["benchmark"], entry["difference"]
    if not (entry["ours"] and entry["base"]):
        lacks = base if entry["ours"] else model
        return (
            "refused",
            f"{name}: not compared; {lacks} has no results (make bench MODEL={lacks} BENCH={name})",
        )
    if entry["refused"]:
        return "refused", f"{name}: not compared; {entry['refused']}"
    n, said = found["n"], verdict({**entry, "a": model, "b": base})[0]
    if said == "beats" and found["mean"] < 0:
        lost = {**found, "mean": -found["mean"], "lo": -found["hi"], "hi": -found["lo"]}
        said, sentence = "worse", f"{model} is worse than {base}, by {interval(lost)}"
    elif n < stats.FEWEST or found["lo"] <= -entry["margin"]:
        shown = (
            f"difference {interval(found)} on {n} question{'' if n == 1 else 's'}"
            if n
            else "no question in common"
        )
        needs = f": about {entry['needed']:,} questions are needed" if n else ""
        said, sentence = (
            "cannot tell",
            f"cannot tell whether {model} lost more than {entry['margin']:g} against {base} ({shown}){needs}",
        )
    elif said == "beats":
        said, sentence = "better", f"{model} beats {base} by {interval(found)}"
    else:
        bound = max(0.0, math.ceil(-1000 * found["lo"] - 1e-9) / 1000)
        said, sentence = (
            "holds",
            f"{model} is not separated from {base} (difference {interval(found)}); a loss of more than {bound:.3f} is ruled out",
        )
    if (
        max(cut := [entry[side]["truncated"] or 0 for side in ("ours", "base")])
        > LIMITS["truncated"]
    ):
        sentence += f". Cut off at the token limit: {_share(round(cut[0], 3))} and {_share(round(cut[1], 3))} of the replies"
    return said, f"{name}: {sentence}"


def regressions(model, base, compared):
    """The one line under such a comparison, and what it comes to: "fail" where a loss is shown or something could not be compared, "open"
    where a benchmark has too few questions to tell, else "pass"."""
    of = {
        said: [entry for entry in compared if entry["verdict"] == said]
        for said in ("worse", "refused", "cannot tell")
    }
    n = len(compared) - len(of["refused"])
    names = {
        said: ", ".join(entry["benchmark"] for entry in entries) for said, entries in of.items()
    }
    parts = [
        ": ".join(
            filter(
                None,
                [
                    f"{model} is worse than {base} on {len(of['worse'])} of {n} benchmark{'' if n == 1 else 's'}",
                    names["worse"],
                ],
            )
        )
    ]
    if of["cannot tell"]:
        parts.append(
            "cannot tell: "
            + ", ".join(
                f"{entry['benchmark']} (about {entry['needed']:,} questions are needed)"
                if entry["needed"]
                else entry["benchmark"]
                for entry in of["cannot tell"]
            )
        )
    if of["refused"]:
        parts.append(f"not compared: {names['refused']}")
    return "; ".join(parts), "fail" if of["worse"] or of["refused"] else "open" if of[
        "cannot tell"
    ] else "pass"
