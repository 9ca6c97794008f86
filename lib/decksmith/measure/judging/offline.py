"""The offline measures, `offline-v3`: what a program can say about a rendered deck without seeing it as a person would.

Each function in MEASURES takes a Pages and returns its value: a number for the deck, `{slide number: number}` for
a measure of single slides, or None where the measure does not apply. The protocol's [measures] table turns values
into qualities, and those into the three dimensions (`judge`). docs/measures.md prints the docstrings."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from decksmith.core.records import Record
from decksmith.measure.decks import sources
from decksmith.measure.decks import words as deck_words
from decksmith.measure.decks.words import STOPWORDS, content_words, fold, length
from decksmith.measure.judging.records import Judge, Measure
from decksmith.measure.judging.rendered import ELEMENTS, MeasureSetting, MeasureSettings, Pages
from decksmith.models.records import Usage

NAME = "offline-v3"
CODE_CONTRAST = 1.5  # the shipped themes colour code down to 1.75
RUN = 3  # words in a row that make a quotation
LARGE = 40  # px: the few words of a slide set so large are what the slide shows
CLOSING = """
summary|conclusion|takeaway|thank|question|next step|recap|wrap|outlook|in short|q&a|to remember|the end|
zusammenfassung|fazit|danke|fragen|ausblick|nächste schritte|résumé|merci|prochaines étapes|à retenir|
conclusión|conclusiones|resumen|gracias|preguntas|próximos pasos|conclusione|conclusioni|riepilogo|grazie|domande|
prossimi passi|conclusão|resumo|obrigad|perguntas|próximos passos|samenvatting|conclusie|bedankt|vragen|podsumowanie|
dziękuj|pytania|sammanfattning|tack|frågor|opsummering|konklusion|özet|sonuç|teşekkür|kesimpulan|terima kasih|
kết luận|cảm ơn|まとめ|結論|ありがとう|質問|总结|結語|结论|谢谢|感谢|요약|결론|감사|итог|вывод|заключение|спасибо|
вопрос|підсумок|дякую|συμπέρασμα|ευχαριστ|निष्कर्ष|धन्यवाद|الخلاصة|شكرا
""".replace("\n", "").split("|")
# Words that a noun follows, sooner or later, but never at once a function word or the end of a line.
ARTICLES = deck_words.by_language("""
en: the a an my your our their its
fr: le la les un une des du ce cette
es: el la los las un una del
it: il la le gli un una del della dei nel
pt: o os as um uma do da dos das
nl: de het een
de: der den dem des ein eine im zum zur
""")
STATEMENTS = ("center", "fact", "quote", "section", "statement", "cover")
# Marks that a renderer should have consumed, and text that an author should have replaced.
LEFTOVERS = (
    "```|{{|}}|](|image-query:|\nlayout: |v-click|::right::|**|<br|</|\n## |\n# |\n- [|[object Object]|"
    "Lorem ipsum|lorem ipsum|[Insert|[insert|Your text here|Slide title here"
).split("|")

# What a measure finds: one number, one for each slide, or None where it does not apply.
Value = float | Mapping[int, float] | None


def _among_slides(pages: Pages, count: int) -> float:
    """So many slides as a share of all."""
    return count / len(pages.numbers) if pages.numbers else 0


def _language(pages: Pages) -> str:
    """The language that was asked for, by its code without a region; "" for none."""
    return (pages.asks.get("language") or "").split("-")[0]


# --- design ----------------------------------------------------------------------------------------------------------


def overflow(pages: Pages) -> Value:
    """How far content reaches past the canvas or its own clipping box, in px; the worst direction."""
    return {
        n: max((p.get("overflow") or {}).get("x") or 0, (p.get("overflow") or {}).get("y") or 0)
        for n, p in pages.whole.items()
    }


def overlap(pages: Pages) -> Value:
    """Share of the canvas where elements lie on each other."""
    return {n: p.get("overlap") or 0 for n, p in pages.whole.items()}


def contrast(pages: Pages) -> Value:
    """The smallest WCAG contrast ratio of any text of the slide; code, which themes colour, counts below 1.5."""
    found = {}
    for n, p in pages.whole.items():
        boxes = [(box["kind"], box.get("contrast")) for box in p.get("boxes") or []]
        ratios = [x for kind, x in boxes if x is not None and (kind != "code" or x < CODE_CONTRAST)]
        if p.get("contrast") is not None:
            found[n] = min(ratios, default=21) if boxes else p["contrast"]
    return found


def smallest(pages: Pages) -> Value:
    """The smallest font size on the slide, in px of a canvas 980 px wide."""
    sizes = {n: (p.get("font") or {}).get("min") for n, p in pages.whole.items()}
    return {n: size for n, size in sizes.items() if size is not None}


def pictures(pages: Pages) -> Value:
    """Pictures that did not load."""
    return {n: p.get("images_broken") or 0 for n, p in pages.whole.items()}


def density(pages: Pages) -> Value:
    """Words on the slide; too many lose, few do not: a slide may show one thing."""
    return dict(pages.words) or None


def whitespace(pages: Pages) -> Value:
    """Share of the canvas without content; slides without pictures, because a picture may fill a slide."""
    shares = {n: p.get("whitespace") for n, p in pages.whole.items() if not p.get("images")}
    return {n: share for n, share in shares.items() if share is not None} or None


def hierarchy(pages: Pages) -> Value:
    """Size of the title relative to the commonest text size; slides with a title and other text."""
    fonts = {n: p.get("font") or {} for n, p in pages.whole.items()}
    both = {n: f for n, f in fonts.items() if f.get("title") and f.get("dominant")}
    return {n: f["title"] / max(f["dominant"], 1) for n, f in both.items()} or 0


def variety(pages: Pages) -> Value:
    """Kinds of slide: the effective number (the exponential of the entropy) of combinations of layout and elements
    shown, over the square root of the number of slides, so that length by itself gains little."""
    elements = ("code", "mermaid", "katex", "table", "image", "quote", "two-cols")
    kinds = Counter(
        (p.get("layout"), *(pages.has(n, e) for e in elements)) for n, p in pages.whole.items()
    )
    total = kinds.total()
    entropy = -sum(c / total * math.log(c / total) for c in kinds.values())
    return math.exp(entropy) / math.sqrt(total) if total else 0


def visuals(pages: Pages) -> Value:
    """Share of the slides that show something besides running text: picture, diagram, table, quotation, code, formula, or
    a few words set large (40 px)."""
    shown = [any(pages.has(n, e) for e in ELEMENTS) or _displays(pages, n) for n in pages.whole]
    return _among_slides(pages, sum(shown))


def _displays(pages: Pages, n: int) -> bool:
    """Whether a slide shows a few words set large."""
    font = pages.whole[n].get("font")
    size = max(font.get("title") or 0, font.get("dominant") or 0) if font else 0
    return size >= LARGE and not pages.has(n, "cover")


# --- content ---------------------------------------------------------------------------------------------------------


def checklist(pages: Pages) -> Value:
    """Share of the checklist that a text match finds, within the limits of this table."""
    return sum(a["yes"] for a in pages.answers) / len(pages.answers) if pages.answers else None


def slides(pages: Pages) -> Value:
    """Slides made against slides asked for: the smaller divided by the larger; empty slides are not made."""
    asked, made = pages.asks.get("slides"), len(pages.whole)
    return min(asked, made) / max(asked, made) if asked else None


def features(pages: Pages) -> Value:
    """Share of the asked elements (code, diagram, formula, table, picture, columns, quotation, click steps, notes)
    that are there."""
    asked = pages.asks.get("features") or []
    there = {
        "notes": lambda: any(s.note for s in pages.deck.slides),
        "clicks": lambda: any("v-click" in s.prose for s in pages.deck.slides),
    }
    found = [there[f]() if f in there else any(pages.has(n, f) for n in pages.whole) for f in asked]
    return sum(found) / len(found) if found else None


def theme(pages: Pages) -> Value:
    """Whether the deck uses the theme that was asked for."""
    asked = pages.asks.get("theme")
    return float(asked == (pages.record.get("deck") or {}).get("theme")) if asked else None


def language(pages: Pages) -> Value:
    """Share of the text in the asked language: by script, or by its function words against the likeliest other
    language's."""
    return deck_words.language_share(pages.texts.values(), pages.asks.get("language"))


def outline(pages: Pages) -> Value:
    """Share of the asked outline's headings that some slide's title covers by half of its words."""
    asked = pages.asks.get("outline") or []
    return sum(place is not None for place in _places(pages, asked)) / len(asked) if asked else None


def _places(pages: Pages, asked: list[str]) -> list[int | None]:
    """The slide whose title covers each heading by half of its words, None where none does."""
    titles = {n: set(t.split()) for n, t in pages.titles().items()}
    places = []
    for heading in asked:
        want = set(fold(heading).split())
        best = max(titles, key=lambda n: (len(want & titles[n]), -n), default=None)
        places.append(best if best and len(want & titles[best]) * 2 >= len(want) > 0 else None)
    return places


def topic(pages: Pages) -> Value:
    """Share of the request's content words that the slides take up, beside the headings that were asked for: little is
    another topic or none, all of it is the request itself. Null where the deck is asked for in another language."""
    headings = content_words(fold(" ".join(pages.asks.get("outline") or [])))
    asked = content_words(fold(pages.request)) - headings
    spoken, wanted = deck_words.likeliest_language(pages.request), _language(pages)
    if len(asked) < 3 or (spoken and wanted and spoken != wanted):
        return None
    return len(asked & set().union(*pages.own.values())) / len(asked)


def aside(pages: Pages) -> Value:
    """Share of the slides with code or formulas, where `asks.features` is given and has them not."""
    if not pages.asks.get("features"):
        return None
    unasked = [e for e in ("code", "katex") if e not in pages.asks["features"]]
    return _among_slides(pages, sum(any(pages.has(n, e) for e in unasked) for n in pages.whole))


def leftovers(pages: Pages) -> Value:
    """Share of the slides that show raw markup, template syntax or filler text where they show no code."""
    said = [
        "\n" + (p.get("text") or "") for n, p in pages.whole.items() if not pages.has(n, "code")
    ]
    return _among_slides(pages, sum(any(mark in text for mark in LEFTOVERS) for text in said))


def figures(pages: Pages) -> Value:
    """Share of the request's figures (two digits or more; not the number of slides, nor the numbering of a list) that the
    deck shows."""
    asked = _asked_figures(pages.record)
    shown = set().union(*map(figures_in, pages.texts.values()))
    return len(asked & shown) / len(asked) if asked else None


def figures_in(text: str) -> set[str]:
    """The numbers of a text without the signs that group digits; 10 000 is one and also two."""
    text = unicodedata.normalize("NFKC", text)
    found = re.findall(r"(?<!\w)\d+(?:[.,:']\d+)*", text)
    found += re.findall(r"(?<!\w)\d{1,3}(?: \d{3})+(?!\d)", text)
    digits = {"".join(c for c in number if c.isdigit()) for number in found}
    return {number for number in digits if len(number) > 1}


def _asked_figures(record: Record) -> set[str]:
    """The figures of a request. A number at a word for slides in the request's language is how many there shall be."""
    request = re.sub(r"(?m)^\s*\d{1,2}[.):]?\s", "", sources.request(record))
    pairs = _SLIDES.findall(unicodedata.normalize("NFKC", request).casefold())
    slides = {str((record.get("asks") or {}).get("slides")), *(d for pair in pairs for d in pair)}
    return figures_in(request) - slides


# 12 slides, a 12-slide deck, 10-12 pages, slides: 12, 12枚のスライド, 12张幻灯片 ..
_SLIDES = re.compile(
    r"(?<!\d)(\d{1,3})(?:\s?(?:-|–|to|bis|à|a|bis zu)\s?(\d{1,3}))?[\s-]?(?:[^\W\d_]{1,12}\s){0,1}(?:の)?"
    r"(?:slid|page|seite|foli|diapo|diaposit|lámin|pantall|planche|pagin|páginas|dia'?s|sider|sidor|bild|slajd|snímk|strán|"
    r"слайд|διαφάνει|slayt|salind|trang|स्लाइड|شرائح|شريحة|枚|张|張|页|頁|ページ|장|슬라이드|쪽)"
    r"|(?:slides?|folien|diapositiv\w*|スライド|幻灯片|슬라이드)\s*[:=]\s*(\d{1,3})"
)


def echo(pages: Pages) -> Value:
    """Share of the words that stand in the request in the same order, three or more in a row."""
    return repeated(pages, [pages.request])


def repeated(pages: Pages, sources: Iterable[str]) -> float | None:
    """Share of the deck's words in runs of RUN or more that a source has too; None without runs."""
    runs = {run for source in sources for run in _runs(units(source))}
    words = said = 0
    for text in pages.texts.values():
        spoken = units(text)
        at = {i + k for i, run in enumerate(_runs(spoken)) if run in runs for k in range(RUN)}
        words, said = words + len(spoken), said + len(at)
    return said / words if runs and words else None


def _runs(words: list[str]) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)]


def units(text: str) -> list[str]:
    """Words without their punctuation; single letters in scripts without blanks."""
    whole = (c if deck_words.inside(c) else " " for c in fold(text))
    return "".join(f" {c} " if deck_words.dense(c) else c for c in whole).split()


# --- coherence -------------------------------------------------------------------------------------------------------


def opening(pages: Pages) -> Value:
    """The first slide: 0.5 for a title, 0.25 for a cover layout, 0.25 for at most 40 words beside it."""
    if not pages.whole.get(1, {}).get("title"):
        return 0.0
    return 0.5 + 0.25 * pages.has(1, "cover") + 0.25 * (pages.words[1] <= 40)


def close(pages: Pages) -> Value:
    """The last slide: 1 when it is laid out or titled as an ending, 0.7 when its text says so or it stands as a
    statement, 0.4 when it names the deck's title again."""
    if not pages.numbers or pages.numbers[-1] not in pages.whole or len(pages.whole) < 2:
        return 0.0
    last, titles = pages.numbers[-1], pages.titles()
    if pages.has(last, "end") or any(word in titles[last] for word in CLOSING):
        return 1.0
    says_so = any(word in pages.texts[last] for word in CLOSING)
    if says_so or pages.whole[last].get("layout") in STATEMENTS:
        return 0.7
    return 0.4 if content_words(titles.get(1, "")) & pages.tokens[last] else 0.0


def titles(pages: Pages) -> Value:
    """Share of the slides with a title that no other slide has; a picture or a few large words need none."""
    titles = pages.titles()
    good = sum(1 for title, times in Counter(titles.values()).items() if title and times == 1)
    untitled = [n for n, title in titles.items() if not title]
    for n in untitled:
        good += _displays(pages, n) or (pages.words[n] <= 5 and pages.has(n, "image"))
    return _among_slides(pages, good)


def thread(pages: Pages) -> Value:
    """Share of the slides with words that take up a word of the request or of an earlier slide; from the second on."""
    known, linked = content_words(fold(pages.request)), []
    for n in pages.whole:
        if words := pages.tokens[n]:
            linked.append(bool(words & known))
            known |= words
    return sum(linked[1:]) / len(linked[1:]) if linked[1:] else 0


def order(pages: Pages) -> Value:
    """The longest run of the outline's headings that stand in the asked order, as a share of those found."""
    found = _places(pages, pages.asks.get("outline") or [])
    places = [place for place in found if place is not None]
    best: list[int] = []
    for i, place in enumerate(places):
        best.append(1 + max((best[j] for j in range(i) if places[j] < place), default=0))
    return max(best) / len(places) if len(places) > 1 else None


def grammar(pages: Pages) -> Value:
    """Share of function words in the text beside the titles, on slides without code, diagram and formula: words without
    any are a list that says nothing. From 60 words on, in the languages that the measure `language` tells by them."""
    asked, words, titles = _language(pages), [], pages.titles()
    for n in pages.whole:
        if not any(pages.has(n, e) for e in ("code", "mermaid", "katex")):
            text = pages.texts[n].replace(titles[n], " ", 1)
            words += "".join(c if c.isalpha() else " " for c in text).split()
    if asked not in STOPWORDS or len(words) < 60:
        return None
    return sum(word in STOPWORDS[asked] for word in words) / len(words)


def articles(pages: Pages) -> Value:
    """Share of the articles with a function word, a mark or nothing behind them: words in no order. From 8 articles on, in
    seven languages, on slides without code and formula."""
    language, found, bad = _language(pages), 0, 0
    if language not in ARTICLES:
        return None
    plain = [n for n in pages.whole if not pages.has(n, "code") and not pages.has(n, "katex")]
    for n in plain:
        for line in pages.readable[n].split("\n"):
            words = re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)*|[.,;:!?()—–\"]", fold(line))
            for word, behind in zip(words, [*words[1:], "."], strict=False):
                if word in ARTICLES[language]:
                    found += 1
                    bad += behind in STOPWORDS[language] or not behind[0].isalnum()
    return bad / found if found >= 8 else None


def repeats(pages: Pages) -> Value:
    """Share of the slides that repeat an earlier one: the same picture, or nine in ten words the same with digits and
    the words of the titles set aside."""
    again = 0
    bags: dict[int, Counter[str]] = {}
    for n in pages.whole:
        titled = {*units(pages.titles()[n])}
        words = [word for word in pages.texts[n].split() if not titled.issuperset(units(word))]
        bag = Counter("".join(c for c in word if not c.isdigit()) for word in words)
        for m, other in bags.items():
            union = (bag | other).total()
            if (union >= 5 and (bag & other).total() >= 0.9 * union) or _alike(pages, m, n):
                again += 1
                break
        bags[n] = bag
    return _among_slides(pages, again)


def _alike(pages: Pages, m: int, n: int) -> bool:
    """Whether the pictures of two slides are the same."""
    if m not in pages.pictures or n not in pages.pictures:
        return False
    return bool(abs(pages.looked[m].thumb - pages.looked[n].thumb).max() < 6)


def empty(pages: Pages) -> Value:
    """Share of the slides that show nothing: blank, of one colour, or replaced because they could not be rendered."""
    return 1 - len(pages.whole) / len(pages.numbers) if pages.numbers else 1


def hollow(pages: Pages) -> Value:
    """Share of the slides between the first and the last that show nothing but a heading that was asked for, or at most
    two words beside it: no picture, no figure, nothing in place of a title of their own."""
    headings = [set(units(h)) for h in pages.asks.get("outline") or []]
    inner = [n for n in pages.numbers[1:-1] if n in pages.whole]
    bad = 0
    for n in inner:
        title, said = set(units(pages.titles()[n])), set(units(pages.texts[n]))
        asked = any(len(title & heading) * 2 >= len(heading) for heading in headings)
        asked = asked or length(" ".join(title)) < 3
        few = length(" ".join(said - title)) <= 2 and not any(c.isdigit() for c in pages.texts[n])
        bad += asked and few and not any(pages.has(n, e) for e in ELEMENTS)
    return bad / len(inner) if inner else None


def unread(pages: Pages) -> Value:
    """Share of the slide's lines of text that cannot be made out in its picture: the pixels where a line stands are not
    like its letters, or hardly differ from what is around them."""
    found = {}
    for n, page in pages.whole.items():
        if lines := sum(1 for box in page.get("boxes") or [] if box.get("ink")):
            found[n] = len(pages.lost(n)) / lines
    return found or None


def errors(pages: Pages) -> Value:
    """Share of the slides with an error of the model's in them (accepted by the protocol, or the deck would not be
    here)."""
    found = pages.record["render"].get("errors") or []
    bad = {error.get("slide") for error in found if error.get("kind") == "model"}
    return _among_slides(pages, len(bad & {*pages.numbers}))


MEASURES = {measure.__name__: measure for measure in (
    overflow, overlap, contrast, smallest, pictures, density, whitespace, hierarchy, variety, visuals,
    checklist, slides, features, theme, outline, figures, language, topic, aside, leftovers, echo,
    opening, close, titles, thread, order, grammar, articles, unread, repeats, empty, hollow, errors,
)}  # fmt: skip
DIMENSIONS = ("content", "design", "coherence")
# What a merit of the content needs in a prompt, by the names of docs/records.md.
NEEDS = {name: f"asks.{name}" for name in ("slides", "features", "theme", "outline")}
NEEDS = {"checklist": "checklist", **NEEDS, "figures": "figures in the request"}


def quality(value: float, ramp: Sequence[float]) -> float:
    """A value's place on a ramp, 0..1. Two numbers: where it is 0 and where it is 1 (either way round). Four: 0, 1, 1, 0."""
    if len(ramp) == 4:
        return min(quality(value, ramp[:2]), quality(value, [ramp[3], ramp[2]]))
    low, high = ramp
    return min(1.0, max(0.0, (value - low) / (high - low)))


def lacking(record: Record, needed: int) -> list[str]:
    """What a prompt lacks for its decks' content to be measured, by the names of docs/records.md; [] where
    `needed` of the content's merits apply; a checklist counts for two. No deck is needed."""
    has = {**(record.get("asks") or {}), "checklist": record.get("checklist")}
    has["figures"] = _asked_figures(record)
    there = sum(bool(has.get(name)) for name in NEEDS) + bool(has["checklist"])
    return [] if there >= needed else [NEEDS[name] for name in NEEDS if not has.get(name)]


def judge(record: Record, run: str | Path, settings: MeasureSettings, needed: int) -> Judge:
    """The value of `judge` for a rendered record; `scores.content` is null where its prompt lacks too much
    (`lacking`). Raises cli.BadData for a picture that cannot be read."""
    pages = Pages(record, run, settings)
    found = measured(pages, settings, MEASURES)
    scores: dict[str, float | None] = {}
    why: dict[str, str] = {}
    for dimension in DIMENSIONS:
        own = {n: m for n, m in found.items() if dimension in settings[n]["dimensions"]}
        portion, losses = share(qualities(own), settings, bool(pages.whole))
        scores[dimension] = round(1 + 4 * portion, 2)
        why[dimension] = _why(own, losses)
    if lacks := lacking(record, needed):
        scores["content"] = None
        why["content"] = f"not measured: the prompt lacks {', '.join(lacks)}"
    return {
        "judge": NAME,
        "scores": scores,
        "why": why,
        "caps": [],
        "checklist": pages.answers,
        "usage": cast(Usage, {}),  # nobody was asked
        "measures": found,
    }


def measured(pages: Pages, settings: MeasureSettings, names: Iterable[str]) -> dict[str, Measure]:
    """{name: {"value", "quality", "slide"}} of measures; all three are None for one that does not apply."""
    return {name: _measure(MEASURES[name](pages), settings[name]) for name in names}


def share(
    qualities: Mapping[str, float], settings: MeasureSettings, made: bool
) -> tuple[float, dict[str, float]]:
    """(how good a deck is by the measures that apply, 0..1, what each of them costs). `made`: it has slides."""
    weights = {n: settings[n]["weight"] for n in qualities if settings[n]["role"] == "merit"}
    portion = 0.0
    if weights and made:
        portion = sum(qualities[n] * w for n, w in weights.items()) / sum(weights.values())
    losses = {n: w * (1 - qualities[n]) for n, w in weights.items()}
    for name, value in qualities.items():
        if name not in weights:
            least = settings[name]["least"]
            factor = least + (1 - least) * value
            portion *= factor
            losses[name] = 10 * (1 - factor)
    return portion, losses


def qualities(found: Mapping[str, Measure]) -> dict[str, float]:
    """The qualities of the measures that apply."""
    return {n: m["quality"] for n, m in found.items() if m["quality"] is not None}


def _measure(value: Value, setting: MeasureSetting) -> Measure:
    """Over the slides, a merit is averaged; a fault is half the average and half the worst slide, so that one bad
    slide among many shows. `value` and `slide` name the worst slide."""
    if value is None or value == {}:
        return {"value": None, "quality": None, "slide": None}
    if not isinstance(value, Mapping):
        good = round(quality(value, setting["ramp"]), 4)
        return {"value": round(float(value), 3), "quality": good, "slide": None}
    each = {n: quality(v, setting["ramp"]) for n, v in value.items()}
    worst = min(each, key=lambda n: (each[n], n))
    mean = sum(each.values()) / len(each)
    good = round((mean + each[worst]) / 2 if setting["role"] == "fault" else mean, 4)
    return {"value": round(float(value[worst]), 3), "quality": good, "slide": worst}


def _why(here: dict[str, Measure], losses: dict[str, float]) -> str:
    """One sentence: the measures that cost most."""
    worst = sorted((n for n in losses if losses[n] > 0.005), key=lambda n: (-losses[n], n))[:3]
    said = []
    for n in worst:
        where = f" on slide {here[n]['slide']}" if here[n]["slide"] else ""
        said.append(f"{n} {here[n]['value']:g}{where}")
    return "lost most by " + ", ".join(said) if said else "no measure lost anything"
