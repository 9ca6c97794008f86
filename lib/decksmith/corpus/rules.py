"""The corpus: what a draft (PROMPT.md, think.md, deck.md) must keep to, and the chat row that it becomes.

Two profiles judge drafts. `published` has the gates of the published corpus one by one, as they are, weaknesses
included; `strict` reads the deck with our parser, and what is rendered of it with `rendered`. A fault is {"file",
"line", "rule", "message", "remedy"}; the rules and their remedies are PUBLISHED and STRICT.
"""

import hashlib
import itertools
import json
import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote

from decksmith.core import cli, stream
from decksmith.decks import words as deck_words
from decksmith.decks.parser import LAYOUTS, SLOT, THEMES, Deck

VERSION = "check-2"  # raise it when a verdict changes: journals keep verdicts
FILES = ("PROMPT.md", "think.md", "deck.md")
SEED_THEMES = tuple(name for name, theme in THEMES.items() if theme["seeds"])
FEATURES = ("code", "mermaid", "katex", "table", "image", "two-cols", "quote", "clicks", "notes")
HEADINGS = (
    "Reading the user prompt",
    "Theme fit",
    "Narrative arc",
    "Key slide mapping",
    "Image & feature choices",
    "Self-review",
)
LEAST = {"PROMPT.md": 40, "think.md": 400, "deck.md": 300}  # bytes
WORDS = (250, 1200)  # of think.md
SLIDES_OFF = 2  # slides more or fewer than asked
OVERFLOW_PX = 16  # content may reach so far past the slide or its own box: half a line of text
LARGEST = 1 << 18  # bytes of a file that is read
MOST = 100  # faults of a draft that are told
LANGUAGE = {
    "latin": 0.8,
    "script": 0.5,
}  # least value of offline.language, by what tells the language
CHEATSHEET = 0.5  # share of the rows whose instructions include the cheat sheet
LIMIT = 4096  # tokens of a training sequence
BYTES_PER_TOKEN = (
    3.5  # where no tokenizer counts; Latin text has more, so the estimate is high rather than low
)


# --- reading ----------------------------------------------------------------------------------------------------------


def seed(folder):
    """The seed of a draft's folder, from its seed.json. Raises cli.BadData naming the file."""
    path = Path(folder) / "seed.json"
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise cli.BadData(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise cli.BadData(f"{path}: not a JSON object")
    return {key: item for key, item in value.get("seed", value).items() if key != "id"}


def texts(folder):
    """({name: text or None}, faults) of a draft's three files; links and what is no regular file count as missing."""
    found, faults = {}, []
    for name in FILES:
        found[name] = None
        try:
            data = read(Path(folder) / name)
        except OSError as error:
            faults.append(
                _fault(name, 1, "missing", f"the file cannot be read ({error.strerror or error})")
            )
            continue
        try:
            found[name] = data.decode()
        except UnicodeDecodeError as error:
            found[name] = data.decode(errors="replace")
            faults.append(
                _fault(
                    name, data.count(b"\n", 0, error.start) + 1, "encoding", "the file is not UTF-8"
                )
            )
    return found, faults


def read(path):
    """The bytes of a file that an author wrote: never through a link, never from a pipe. Raises OSError, also beyond LARGEST bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError("no regular file")
        if info.st_size > LARGEST:
            raise OSError(f"more than {LARGEST >> 10} kB")
        return file.read()


def faults(folder, seed, profile="strict"):
    """What is wrong with a draft by its text alone, in order of file and line; see `rendered` for the rest."""
    found, out = texts(folder)
    if profile == "published":
        out = [
            _fault(f["file"], 1, _PREFIX[f["file"]] + "-size", f["message"])
            for f in out
            if f["rule"] == "missing"
        ]
        for name, gate in zip(
            FILES, (_published_prompt, _published_think, _published_deck), strict=True
        ):
            if found[name] is not None:
                out += gate(found[name])
    else:
        out += _strict(found, seed)
    remedies = PUBLISHED if profile == "published" else STRICT
    out = list({(f["file"], f["line"], f["rule"], f["message"]): f for f in out}.values())
    for fault in out:
        fault["remedy"] = remedies[fault["rule"]]
    return sorted(out, key=lambda f: (f["file"] != "seed.json", *_place(f)))[:MOST]


def _place(fault):
    return FILES.index(fault["file"]) if fault["file"] in FILES else 0, fault["line"]


def _fault(file, line, rule, message):
    return {"file": file, "line": line, "rule": rule, "message": message}


def _line(text, offset):
    return text.count("\n", 0, offset) + 1


# --- the published gates ----------------------------------------------------------------------------------------------

# Facts of trillion-labs/nemoslides, cli/codex_pipeline.py and pipeline/slidev_reference.py.
PUBLISHED = {
    "prompt-size": "write at least 40 bytes to PROMPT.md",
    "prompt-stub": "replace the stub",
    "prompt-short": "write at least 40 bytes besides blanks",
    "prompt-fenced": "take the code fence away from around the prompt",
    "prompt-terms": "ask for a deck without words about training or reasoning",
    "think-size": "write at least 400 bytes to think.md",
    "think-stub": "replace the stub",
    "think-headings": "write all six headings as they are given",
    "think-short": "write at least 250 words",
    "think-long": "write at most 1200 words",
    "think-seed": "speak of the user prompt and not of a seed",
    "think-render": "do not claim to have seen a render",
    "deck-size": "write at least 300 bytes to deck.md",
    "deck-stub": "replace the stub",
    "deck-start": "begin the deck with a line `---` and nothing before it",
    "deck-headmatter": "close the first frontmatter with a line `---`",
    "deck-cover": "write layout: cover, without quotes, into the first frontmatter",
    "deck-no-theme": "name the theme in the first frontmatter",
    "deck-theme": "name one of the listed themes",
    "deck-no-layout": "give the slides a layout",
    "deck-layout": "use the listed layouts, also inside of code",
    "deck-blank-line": "let the frontmatter follow its `---` at once",
    "deck-layout-first": "begin the frontmatter of each slide with layout:",
    "deck-image-url": "write image-query: in place of an address",
    "deck-slides": "write at least 4 slides, each with a frontmatter that begins with layout:",
}
PUBLISHED_THEMES = tuple(name for name, theme in THEMES.items() if theme["published"])
PUBLISHED_LAYOUTS = (
    "cover",
    "default",
    "center",
    "section",
    "statement",
    "fact",
    "intro",
    "end",
    "two-cols",
    "image-right",
    "image-left",
    "image",
    "quote",
    "full",
)
_PREFIX = {"PROMPT.md": "prompt", "think.md": "think", "deck.md": "deck"}
_TERMS = re.compile(
    r"(?i)\b(?:think\.md|chain[- ]of[- ]thought|training data|sft|supervised fine[- ]tuning"
    r"|internal pipeline)\b"
)


def _sized(name, text):
    if len(text.encode("utf-8", "replace")) < LEAST[name]:
        yield _fault(name, 1, f"{_PREFIX[name]}-size", f"fewer than {LEAST[name]} bytes")
    if text.strip().startswith("<!--\nCodex:"):
        yield _fault(name, 1, f"{_PREFIX[name]}-stub", "the file is still its stub")


def _published_prompt(text):
    yield from _sized("PROMPT.md", text)
    bare = text.strip()
    if (
        len(bare.encode("utf-8", "replace"))
        < LEAST["PROMPT.md"]
        <= len(text.encode("utf-8", "replace"))
    ):
        yield _fault("PROMPT.md", 1, "prompt-short", "fewer than 40 bytes besides blanks")
    if bare.startswith("```") or bare.endswith("```"):
        yield _fault("PROMPT.md", 1, "prompt-fenced", "the prompt begins or ends with a code fence")
    if match := _TERMS.search(text):
        yield _fault(
            "PROMPT.md", _line(text, match.start()), "prompt-terms", f"the prompt says {match[0]!r}"
        )


def _published_think(text):
    yield from _sized("think.md", text)
    for heading in HEADINGS:  # anywhere, in any order
        if f"## {heading}" not in text:
            yield _fault("think.md", 1, "think-headings", f"no heading {heading!r}")
    length = len(text.split())
    if length < WORDS[0]:
        yield _fault("think.md", 1, "think-short", f"{length} words")
    if length > WORDS[1]:
        yield _fault("think.md", 1, "think-long", f"{length} words")
    low = text.lower()
    if "seed" in low and "user prompt" not in low:  # never alone: the first heading has these words
        yield _fault(
            "think.md",
            _line(text, low.index("seed")),
            "think-seed",
            "a seed is named, the user prompt is not",
        )
    for phrase in (
        "render feedback",
        "after rendering",
        "post-render",
        "I rendered",
    ):  # the last never matches
        if phrase in low:
            yield _fault(
                "think.md", _line(text, low.index(phrase)), "think-render", f"think says {phrase!r}"
            )
            break


def _published_deck(text):
    yield from _sized("deck.md", text)
    if not text.startswith("---\n"):
        yield _fault(
            "deck.md", 1, "deck-start", "the deck does not begin with `---` and a line's end"
        )
    head = re.match(r"---\n(.*?)\n---\n", text, re.S)
    if not head:
        yield _fault(
            "deck.md", 1, "deck-headmatter", "the first frontmatter is not closed, or not there"
        )
    elif not re.search(r"(?m)^\s*layout:\s*cover\b", head[1]):
        yield _fault("deck.md", 1, "deck-cover", "the first frontmatter has no layout: cover")

    def named(key):  # wherever it stands, in code too
        return [
            (m[1].strip("\"'"), _line(text, m.start(1)))
            for m in re.finditer(rf"(?m)^\s*{key}:\s*(\S+)", text)
        ]

    themes, layouts = named("theme"), named("layout")
    if not themes:
        yield _fault("deck.md", 1, "deck-no-theme", "no theme is named")
    elif themes[0][0] not in PUBLISHED_THEMES:
        yield _fault(
            "deck.md", themes[0][1], "deck-theme", f"the theme {themes[0][0]} is not on the list"
        )
    if not layouts:
        yield _fault("deck.md", 1, "deck-no-layout", "no layout is named")
    unknown = [(name, line) for name, line in layouts if name not in PUBLISHED_LAYOUTS]
    if unknown:
        names = ", ".join(sorted({name for name, _ in unknown}))
        yield _fault("deck.md", unknown[0][1], "deck-layout", f"unknown layouts: {names}")
    if blank := re.search(r"\n---\n(?:[ \t]*\n)+layout:\s*\S", text):
        yield _fault(
            "deck.md",
            _line(text, blank.start() + 1),
            "deck-blank-line",
            "a blank line before the frontmatter",
        )
    begun = len(re.findall(r"\n---\nlayout:\s*\S", text))
    if layouts and len(layouts) != begun + 1:
        message = f"{len(layouts)} layouts are named, {begun + 1} slides begin with one"
        yield _fault("deck.md", 1, "deck-layout-first", message)
    if url := re.search(r"(?m)^\s*image:\s*https?://", text):
        yield _fault("deck.md", _line(text, url.end()), "deck-image-url", "an image is an address")
    if begun + 1 < 4:
        yield _fault("deck.md", 1, "deck-slides", f"{begun + 1} slides")


# --- the strict rules -------------------------------------------------------------------------------------------------

STRICT = {
    "seed": "write the seed as docs/records.md has it",
    "missing": "write the file, as a regular file of at most 256 kB",
    "size": "write the whole text",
    "encoding": "save the file as UTF-8 with LF line ends and without BOM (--fix does it)",
    "tags": "leave out <think> tags (--fix does it)",
    "secret": "take the key out and revoke it",
    "prompt-fenced": "take the code fence away from around the prompt (--fix does it)",
    "prompt-leak": "ask as a person would who wants a deck and knows nothing of how it is made",
    "prompt-theme": "ask for the seed's theme, or for none",
    "think-headings": "write the six headings once each, in their order, each with text below it",
    "think-words": "write 250 to 1200 words",
    "think-render": "say what is planned; nobody has seen this deck on a screen",
    "think-deck": "let think.md and deck.md agree: change one of them",
    "wrapped": "write the deck alone: no fence, thought or greeting around it (--fix does it)",
    "headmatter": "begin the deck with a frontmatter that names theme and title",
    "frontmatter-blank": "let the frontmatter follow its `---` at once (--fix does it)",
    "yaml": "write the frontmatter as `key: value` lines; put values with *, &, %, :, # or ` in quotes",
    "theme": "name the theme that was asked for in the first frontmatter",
    "slides": f"come to the number of slides that was asked for, at most {SLIDES_OFF} off",
    "unknown-layout": "use a layout of Slidev or of the theme",
    "slots": "write the slot marks of the layout (`::right::`; `::left::` and `::right::` with a header) on own lines",
    "remote-url": "load nothing and link nowhere: write image-query: for a picture, plain words for a source",
    "picture": "ask for pictures by image-query: in an image layout, or by ![caption](image-query://words+with+plus)",
    "note": "write the note as one HTML comment at the end of the slide",
    "comment": "close each HTML comment before the next slide",
    "empty-slide": "give the slide words or take it out (--fix takes a trailing `---` away)",
    "fence": "close the code fence with the mark that opened it, on a line of its own",
    "unknown-component": "use plain HTML or Slidev's own components; show <T> and the like as `code`",
    "forbidden": "leave out scripts, frames, embeds, handlers and files",
    "interpolation": "write `{{` only inside of code; Vue evaluates it elsewhere",
    "language": "write the deck in the language that was asked for",
    "feature": "use what was asked for",
    "placeholder": "write the real text",
    # what only a rendered deck shows
    "overflow": "shorten the slide, split it, or set a smaller zoom in its frontmatter",
    "blank": "give the slide something that can be seen",
    "missing-image": "ask for the picture by image-query:",
    "vue-compile": "close every HTML tag that is opened; keep blank lines around markdown inside of tags",
    "vue-runtime": "use no variables in the deck",
    "unknown-theme": f"name one of the themes {', '.join(THEMES)}",
    "mermaid": "write a diagram that Mermaid reads; quote labels with brackets or colons",
    "katex": "write a formula that KaTeX reads",
    "too-few-slides": "come to the number of slides that was asked for",
    "fenced-deck": "write the deck without a fence around it",
    "deadline": "make the deck cheaper to draw",
    "memory": "make the deck smaller",
}
_PICTURE_LAYOUTS = ("image", "image-left", "image-right", "intro-image", "intro-image-right")
_KEYS = {
    "layout",
    "theme",
    "title",
    "class",
    "image-query",
    "image",
    "background",
    "transition",
    "zoom",
    "clicks",
    "layoutClass",
    "level",
    "hideInToc",
}
_FILE_NAMES = re.compile(
    r"(?i)\b(?:PROMPT\.md|think\.md|deck\.md|seed\.json|INSTRUCTIONS\.md|EXAMPLE\.md|status\.json"
    r"|reasons\.txt|run\.log)\b"
)
_TRAINING = re.compile(
    r"(?i)\b(?:chain[- ]of[- ]thought|training (?:data|set|example)s?|SFT|supervised fine[- ]tuning"
    r"|internal pipeline|reasoning trace|system prompt|seed record|data ?set row)\b"
)
_OF_TRAINING = re.compile(
    r"(?i)\btrain|machine learning|language model|\bLLM|neural|deep learning|\bAI\b|artificial"
    r"|fine[- ]tun|\bprompt"
)
_SECRET = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[A-Z0-9]{16}"
    r"|xox[abp]-[A-Za-z0-9-]{20,})\b|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_PLACEHOLDER = re.compile(
    r"(?i)lorem ipsum|\[insert\b|\byour text here\b|\bslide title here\b|\bTODO:|\bTBD\b"
)
_REMOTE = re.compile(r"""(?ix)\b(?:https?|ftp|file|wss?)://\S* | (?:src|href|poster|data)\s*=\s*["']?//[\w.-]+\S*
                     | url\(\s*["']?//[\w.-]+\S* | \]\(\s*//[\w.-]+\S*""")
_RENDER = re.compile(r"""(?ix)
    \b(?:I|we)\s(?:have\s|then\s|also\s)*(?:rendered|previewed|exported|screenshotted)\b
    | \b(?:I|we)\s(?:have\s|then\s)*(?:saw|seen|looked\sat|opened|checked|viewed)\s(?:the|it|each|every|all)\b
      [^.\n]{0,40}\b(?:render\w*|screenshots?|preview|browser|on\sscreen|PNGs?|PDF)\b
    | \b(?:after|post|on|upon|once|when\sI)[\s-]render(?:ing|ed)?\b | \brender(?:ing)?[\s-]feedback\b
    | \b(?:the|this|my)\s(?:\w+\s)?(?:render(?:ed|ing)?|screenshots?|preview)\b(?:\s\w+){0,2}\s
      (?:shows?|showed|looks?|looked|confirms?|confirmed|revealed|came\sout)\b
    | \bin\sthe\s(?:render|rendered\s\w+|screenshot|preview)\b
    | \bnach\sdem\srendern\b|\bgerendert|\bim\sscreenshot\b|\bdie\svorschau\szeigt
    | \baprès\s(?:le\s)?rendu\b|\bj'ai\s(?:rendu|affiché|prévisualisé)\b|\bcapture\sd'écran
    | \b(?:tras|al|después\sde)\srenderizar|\brenderiz(?:ado|ada|ei|é)\b|\bcaptura\sde\s(?:pantalla|tela|ecrã)
    | \bdopo\s(?:il\s)?render|\bho\srenderizzato|\bna\shet\srenderen\b""")
# A sentence with one of these may name what the deck does not have.
_NEGATION = re.compile(r"""(?ix)\b(?:not?|non|none|never|nothing|nowhere|without|rather|instead|avoid\w*|skip\w*|drop\w*
    |reject\w*|consider\w*|tempt\w*|unlike|neither|nor|would|could|might|omit\w*|cannot|against|left\sout|leave\w*|spare\w*
    |kein\w*|nicht|ohne|statt|anstatt|weder|verzicht\w*|wäre\w*|würde\w*|könnte\w*|pas|sans|plutôt|aucune?|ni|jamais|serait
    |sin|sem|não|ningun\w*|nenhum\w*|lugar|vez|sería|seria|senza|nessun\w*|invece|geen|niet|zonder|zou
    |ingen|inga|inget|utan|ikke|uden|inte|nie|bez|не|без|нет|ani)\b|n't\b|n’t\b|ない|せず|使わ|ません|不|没|沒|無|无|않|없""")
_HTML = frozenset(
    """a abbr address area article aside audio b bdi bdo blockquote br button caption center cite code col
colgroup data datalist dd del details dfn dialog div dl dt em fieldset figcaption figure font footer form h1 h2 h3 h4 h5
h6 header hgroup hr i img input ins kbd label legend li main map mark menu meter nav ol optgroup option output p picture
pre progress q rp rt ruby s samp search section select small source span strike strong style sub summary sup table tbody
td template textarea tfoot th thead time title tr track tt u ul var video wbr big
svg g path circle ellipse line polyline polygon rect text tspan defs use marker lineargradient radialgradient stop
clippath mask pattern symbol filter fegaussianblur feoffset femerge femergenode foreignobject image textpath animate
math mi mn mo ms mtext mrow mfrac msqrt mroot msup msub msubsup munder mover munderover mtable mtr mtd""".split()
)
_SLIDEV = frozenset(
    """arrow autofittext codegroup lightordark link poweredbyslidev renderwhen slidecurrentno slidestotal
titlerenderer toc transform vafter vclick vclickgap vclicks vdrag vdragarrow vswitch mermaid component slot transition
transitiongroup keepalive teleport suspense routerlink""".split()
)
_BANNED = frozenset(
    """script iframe object embed applet frame frameset base meta link tweet youtube bluesky plantuml
monaco slidevvideo""".split()
)
_ICONS = (
    "carbon-",
    "fa6-solid-",
    "heroicons-",
    "logos-",
    "lucide-",
    "mdi-",
    "ph-",
    "ri-",
    "simple-icons-",
    "svg-spinners-",
    "tabler-",
    "twemoji-",
    "uim-",
    "i-",
)
_CODE = re.compile(r"(`+)[^`\n]{1,500}?\1")
_STEPS = re.compile(r"\{[^}|]*\|[^}]*\}")


def _strict(found, seed):
    prompt, think, deck = (found[name] for name in FILES)
    yield from _seed(seed)
    for name, text in found.items():
        if text is not None:
            yield from _any(name, text)
    parsed = None if deck is None else Deck.parse(deck)
    if prompt is not None:
        yield from _prompt(prompt, seed)
    about_deck = list(itertools.islice(_deck(deck, parsed, seed), MOST)) if parsed else []
    yield from about_deck
    if think is not None:  # a deck that is cut wrongly says nothing of what was planned
        cut = {f["rule"] for f in about_deck} & {
            "wrapped",
            "frontmatter-blank",
            "yaml",
            "unknown-layout",
            "fence",
            "comment",
        }
        about_think = _think(
            think.removeprefix("\ufeff").replace("\r\n", "\n"), seed, None if cut else parsed
        )
        yield from itertools.islice(about_think, MOST)


def _seed(seed):
    if seed.get("theme") not in THEMES:
        yield _fault("seed.json", 1, "seed", f"the theme is not one of {', '.join(THEMES)}")
    if not isinstance(seed.get("slides"), int) or isinstance(seed["slides"], bool):
        yield _fault("seed.json", 1, "seed", "slides is not a whole number")
    if not isinstance(seed.get("language"), str):
        yield _fault("seed.json", 1, "seed", "no language")
    if unknown := [f for f in seed.get("features") or [] if f not in FEATURES]:
        yield _fault("seed.json", 1, "seed", f"unknown features: {', '.join(map(str, unknown))}")


def _any(name, text):
    if len(text.strip().encode("utf-8", "replace")) < LEAST[name]:
        yield _fault(name, 1, "size", f"fewer than {LEAST[name]} bytes")
    if text.startswith("\ufeff"):
        yield _fault(name, 1, "encoding", "the file begins with a byte order mark")
    for bad, word in (("\r", "a carriage return"), ("\0", "a NUL"), ("\u2028", "a line separator")):
        if bad in text:
            yield _fault(name, _line(text, text.index(bad)), "encoding", f"the text has {word}")
    if match := re.search(r"(?i)</?think(?:ing)?>", text):
        yield _fault(name, _line(text, match.start()), "tags", f"the text has {match[0]}")
    if match := _SECRET.search(text):
        yield _fault(name, _line(text, match.start()), "secret", "something that looks like a key")


def _prompt(text, seed):
    bare = text.strip()
    if _fenced(bare):
        yield _fault("PROMPT.md", 1, "prompt-fenced", "a code fence stands around the prompt")
    if match := _FILE_NAMES.search(text):
        yield _fault(
            "PROMPT.md",
            _line(text, match.start()),
            "prompt-leak",
            f"the prompt names the file {match[0]}",
        )
    about = json.dumps(
        [seed.get(key) for key in ("topic", "domain", "style", "outline", "audience_phrase")],
        ensure_ascii=False,
    )
    if (match := _TRAINING.search(text)) and not _OF_TRAINING.search(about):
        message = f"the prompt says {match[0]!r} and its topic is another"
        yield _fault("PROMPT.md", _line(text, match.start()), "prompt-leak", message)
    named = {theme for theme in THEMES if theme != "default" and re.search(_naming(theme), text)}
    if named and seed.get("theme") not in named:
        yield _fault(
            "PROMPT.md",
            1,
            "prompt-theme",
            f"the prompt names {', '.join(sorted(named))}, the seed another",
        )


def _naming(theme):
    """A pattern for the name of a theme in a prompt. Other names than those of the seeds are words too: they count
    beside the word theme, or as code."""
    name = theme.replace("-", "[- ]")
    if theme in SEED_THEMES:
        return rf"(?i)\b{name}\b"
    word = r"(?:theme|Thema|thème|tema|テーマ|主题|主題)"
    return rf"(?i)`{name}`|\b{name}[- ]{word}|{word}\W{{1,3}}{name}\b"


def _fenced(text):
    lines = text.split("\n")
    marks = [i for i, line in enumerate(lines) if line.lstrip().startswith("```")]
    return len(marks) == 2 and marks == [0, len(lines) - 1]


def _think(text, seed, deck):

    heads = [(m[1].strip(), m) for m in re.finditer(r"(?m)^##[ \t]+(.+)$", text)]
    names = [name for name, _ in heads]
    sections = {}
    for i, (name, m) in enumerate(heads):
        end = heads[i + 1][1].start() if i + 1 < len(heads) else len(text)
        sections[name] = (m.end(), text[m.end() : end])
    for name in HEADINGS:
        if name not in names:
            yield _fault("think.md", 1, "think-headings", f"no heading {name!r}")
        elif not sections[name][1].strip():
            yield _fault(
                "think.md",
                _line(text, sections[name][0]),
                "think-headings",
                f"nothing stands below {name!r}",
            )
    seen = set()
    for name, m in heads:
        if name in seen or name not in HEADINGS:
            word = "twice" if name in HEADINGS else "besides the six"
            yield _fault(
                "think.md",
                _line(text, m.start()),
                "think-headings",
                f"the heading {name[:60]!r} stands {word}",
            )
        seen.add(name)
    known = [name for name in names if name in HEADINGS]
    if sorted(set(known), key=HEADINGS.index) != list(dict.fromkeys(known)):
        yield _fault("think.md", 1, "think-headings", "the headings are out of order")
    said = deck_words.length(deck_words.fold(text))
    if not WORDS[0] <= said <= WORDS[1]:
        yield _fault("think.md", 1, "think-words", f"{said:g} words")
    about = " ".join(str(seed.get(key) or "") for key in ("topic", "domain", "style"))
    for m in _RENDER.finditer(text):
        if not _NEGATION.search(_sentence(text, m.start())) and not re.search(
            r"(?i)render|screenshot", about
        ):
            yield _fault("think.md", _line(text, m.start()), "think-render", f"think says {m[0]!r}")
            break
    if deck is not None and deck.slides:
        yield from _agree(text, sections, deck)


_END = re.compile(r"[.!?;]\s|[。！？；]|\n\s*\n|\n(?=\s*(?:[-*+]|\d{1,2}[.)])\s)")


def _sentence(text, at):
    """The sentence, or the item of a list, that stands at an offset."""
    start = max(
        (m.end() for m in _END.finditer(text, max(0, at - 1000), at)), default=max(0, at - 1000)
    )
    end = _END.search(text, at)
    return text[start : end.end() if end else len(text)]


def _agree(text, sections, deck):
    """What think.md says of the deck and the deck does not have."""
    counts = found_features(deck)
    layouts = {s.layout for s in deck.shown}
    known = {*LAYOUTS, *THEMES.get(deck.theme, THEMES["default"])["layouts"]}
    start, mapping = sections.get("Key slide mapping", (0, ""))

    def said(pattern, begin=0, end=None, of=lambda m: True):
        for m in re.compile(pattern, re.I).finditer(text, begin, len(text) if end is None else end):
            if of(m) and not _NEGATION.search(_sentence(text, m.start())):
                yield m

    # A layout is named in backticks; only compound names are no plain words of some language or program.
    def lacking(m):
        return m[1] in known - layouts and (
            "-" in m[1] or start <= m.start() < start + len(mapping)
        )

    for m in said(r"`(?:layout: ?)?([\w-]+)`", of=lacking):
        yield _fault(
            "think.md", _line(text, m.start()), "think-deck", f"no slide has the layout {m[1]}"
        )
    for name, pattern in (
        ("mermaid", r"\bmermaid\b"),
        ("katex", r"\bkatex\b"),
        ("clicks", r"\bv-clicks?\b"),
    ):
        for m in said(pattern):
            if not counts[name]:
                yield _fault(
                    "think.md", _line(text, m.start()), "think-deck", f"the deck has no {m[0]}"
                )
                break
    for m in said(
        r"\ba table\b|\btable of\b|^\s*\d+[.)] (?:`[\w-]+`:? )?Table\b", start, start + len(mapping)
    ):
        if not counts["table"]:
            yield _fault("think.md", _line(text, m.start()), "think-deck", "the deck has no table")
            break
    items = _items(mapping)
    if items and items[-1][0] > len(deck.shown):
        line = _line(text, start + items[-1][1])
        yield _fault(
            "think.md",
            line,
            "think-deck",
            f"slide {items[-1][0]} is planned, the deck has {len(deck.shown)}",
        )
    for number, at, item in items:
        named = {name for name in re.findall(r"`([\w-]+)`", item) if name in known}
        if named and number <= len(deck.shown) and not _NEGATION.search(item):
            layout = deck.shown[number - 1].layout
            if layout not in named:
                message = (
                    f"slide {number} is planned as {' or '.join(sorted(named))}, it is {layout}"
                )
                yield _fault("think.md", _line(text, start + at), "think-deck", message)


def _items(text):
    """(number, offset, text) of the items 1, 2, 3, .. of a numbered list, by lines or running on."""
    marks = list(re.finditer(r"(?m)^\s*(\d{1,2})[.)]\s+", text))
    if len(marks) < 2:
        marks = list(re.finditer(r"(?:\A|(?<=\s))(\d{1,2})[.)]\s+", text))
    kept = []
    for m in marks:
        if int(m[1]) == len(kept) + 1:
            kept.append(m)
    ends = [m.start() for m in kept[1:]] + [len(text)]
    return [
        (int(m[1]), m.start(1), text[m.end() : end]) for m, end in zip(kept, ends, strict=False)
    ]


def found_features(deck):
    """How often a deck uses each of FEATURES."""
    from decksmith.decks import features

    counts = features.craft(deck)[1]
    slides = deck.shown
    return {
        "code": sum(
            f.closed and f.lang not in ("", "mermaid", "text", "txt", "md")
            for s in slides
            for f in s.fences
        ),
        "mermaid": sum(f.closed and f.lang == "mermaid" for s in slides for f in s.fences),
        "katex": counts["katex"],
        "table": counts["tables"] + sum("<table" in s.prose.lower() for s in slides),
        "image": sum(bool(s.images) or bool(s.frontmatter.get("image-query")) for s in slides),
        "two-cols": sum(s.layout.startswith("two-cols") or "grid-cols-" in s.prose for s in slides),
        "quote": sum(
            s.layout == "quote" or bool(re.search(r"(?m)^\s*>\s", s.prose)) for s in slides
        ),
        "clicks": counts["clicks"]
        + sum(bool(_STEPS.search(f.info)) for s in slides for f in s.fences),
        "notes": sum(bool(s.note) for s in slides),
    }


def _deck(raw, deck, seed):
    from decksmith.decks import clean

    text = deck.text
    if clean.clean(raw)[0].strip() != text.replace("\0", "").strip() and "\0" not in raw:
        yield _fault("deck.md", 1, "wrapped", "something stands around the deck")
        return
    head = deck.headmatter
    if not text.startswith("---\n") or not all(head.get(key) for key in ("theme", "title")):
        yield _fault(
            "deck.md",
            1,
            "headmatter",
            "the deck does not begin with a frontmatter that names theme and title",
        )
    for _, line, message in deck.faults:
        yield _fault("deck.md", line, "yaml", message)
    asked = seed.get("theme")
    if deck.theme != asked and not deck.faults:
        yield _fault(
            "deck.md",
            _key_line(deck, 0, "theme"),
            "theme",
            f"the theme is {deck.theme}, asked was {asked}",
        )
    if isinstance(seed.get("slides"), int) and abs(len(deck.shown) - seed["slides"]) > SLIDES_OFF:
        yield _fault(
            "deck.md", 1, "slides", f"{len(deck.shown)} slides, asked were {seed['slides']}"
        )
    known = {*LAYOUTS, *THEMES.get(deck.theme, THEMES["default"])["layouts"]}
    for slide in deck.slides:
        yield from _slide(slide, known, deck)
    counts = found_features(deck)
    for feature in seed.get("features") or []:
        if feature in counts and not counts[feature]:
            yield _fault("deck.md", 1, "feature", f"asked was {feature}, and no slide has it")
    yield from _language(deck, seed.get("language"))


def _key_line(deck, index, key):
    slide = deck.slides[index] if deck.slides else None
    return slide._marks[key][0] if slide and key in slide._marks else 1


def _slide(slide, known, deck):
    from decksmith.decks.pictures import QUERY_LENGTH

    bare = _CODE.sub(
        lambda m: " " * len(m[0]), slide.prose
    )  # without fences, comments and inline code

    def at(m, text=bare, line=slide.content_line):
        return line + text.count("\n", 0, m.start())

    where = slide._marks.get("layout", (slide.start,))[0]
    if slide.layout not in known:
        yield _fault(
            "deck.md", where, "unknown-layout", f"the layout {slide.layout[:60]} does not exist"
        )
    elif slide.layout.startswith("iframe"):
        yield _fault("deck.md", where, "forbidden", f"the layout {slide.layout} shows another site")
    slots = {m[1] for line in slide.content.split("\n") if (m := SLOT.fullmatch(line.strip()))}
    for name in LAYOUTS.get(slide.layout, ()):
        if name not in slots:
            yield _fault(
                "deck.md", where, "slots", f"the layout {slide.layout} has nothing under ::{name}::"
            )
    if slots and not LAYOUTS.get(slide.layout, known):
        yield _fault(
            "deck.md",
            where,
            "slots",
            f"the layout {slide.layout} has no slots, the slide has ::{min(slots)}::",
        )

    # frontmatter that is none, and empty slides
    lines = [line for line in slide.content.split("\n") if line.strip()]
    if slide.frontmatter_line is None and _loose(lines):
        yield _fault(
            "deck.md",
            slide.content_line,
            "frontmatter-blank",
            "a blank line parts a frontmatter from its `---`",
        )
    elif not (
        slide.prose.strip()
        or slide.fences
        or slide.layout in ("end", "image", "intro-image", "3-images")
    ):
        yield _fault("deck.md", slide.start, "empty-slide", "the slide is empty")

    # addresses
    for m in _REMOTE.finditer(bare):
        yield _fault("deck.md", at(m), "remote-url", f"the address {m[0][:60]}")
    for note in [(slide.start, slide.note)] * bool(slide.note) + slide.comments:
        if m := _REMOTE.search(note[1]):
            line = slide.start + slide.raw.count("\n", 0, max(0, slide.raw.find(m[0])))
            yield _fault("deck.md", line, "remote-url", f"the address {m[0][:60]}")
    for fence in slide.fences:
        if fence.lang == "mermaid" and (m := _REMOTE.search(fence.text)):
            yield _fault(
                "deck.md",
                fence.line + 1 + fence.text.count("\n", 0, m.start()),
                "remote-url",
                f"the address {m[0]}",
            )
    for key, value in slide.frontmatter.items():
        line = slide._marks.get(key, (slide.start,))[0]
        plain = json.dumps(value, ensure_ascii=False, default=str).replace("image-query://", "")
        if re.search(r"(?i)\b[a-z][a-z+.-]{1,20}://|\"//\w|url\(\s*['\"\\]*//", plain):
            yield _fault("deck.md", line, "remote-url", f"{key} is an address")
        if key == "notes":
            yield _fault("deck.md", line, "note", "a key `notes` is shown to nobody")

    # pictures
    query = slide.frontmatter.get("image-query")
    if "image-query" in slide.frontmatter:
        line = slide._marks.get("image-query", (slide.start,))[0]
        if not isinstance(query, str) or deck_words.count(query) < 2 or len(query) > QUERY_LENGTH:
            yield _fault(
                "deck.md", line, "picture", f"image-query is not 2 words to {QUERY_LENGTH} letters"
            )
        if slide.layout not in _PICTURE_LAYOUTS:
            yield _fault("deck.md", line, "picture", f"the layout {slide.layout} shows no picture")
    elif slide.layout in _PICTURE_LAYOUTS and not slide.frontmatter.get("image"):
        yield _fault("deck.md", where, "picture", f"the layout {slide.layout} has no image-query")
    for image in slide.images:
        local = not re.match(r"(?i)[a-z][a-z+.-]*://|//", image.url)
        if image.url.startswith("image-query://"):
            if deck_words.count(unquote(image.url[14:])) < 2 or re.search(r"\s", image.url):
                yield _fault(
                    "deck.md",
                    image.line,
                    "picture",
                    "an image-query:// wants 2 words or more, joined by +",
                )
        elif local and not (image.kind == "url" and image.url.startswith("#")):
            yield _fault("deck.md", image.line, "picture", f"there is no file {image.url[:60]}")

    # notes, fences, tags, braces
    for line, _ in slide.comments:
        yield _fault("deck.md", line, "note", "a comment stands before the end of the slide")
    if m := re.search(r"(?m)<!--|^[ \t]*-->[ \t]*$", bare):
        yield _fault("deck.md", at(m), "comment", f"a comment without its other half ({m[0]})")
    for comment in [slide.note or "", *(comment for _, comment in slide.comments)]:
        if re.search(r"(?m)^---\s*$|^layout:", comment):
            yield _fault("deck.md", slide.start, "comment", "a comment runs on into the next slide")
    if slide.note is not None and deck_words.count(slide.note) < 2:
        yield _fault("deck.md", slide.end, "note", "the note is empty")
    for fence in slide.fences:
        if not fence.closed:
            yield _fault("deck.md", fence.line, "fence", "the code fence is not closed")
    if m := re.search(r"\{\{|\}\}", _drop_math(bare)):
        yield _fault("deck.md", at(m), "interpolation", f"{m[0]} stands outside of code")
    for m in re.finditer(r"<([A-Za-z][\w.:-]*)(?=[\s/>])", _drop_math(bare)):
        tag = m[1].lower()
        if tag.replace("-", "") in _BANNED and m[1] != "Link":
            yield _fault("deck.md", at(m), "forbidden", f"the element <{m[1]}>")
        elif (
            tag not in _HTML and tag.replace("-", "") not in _SLIDEV and not tag.startswith(_ICONS)
        ):
            yield _fault(
                "deck.md", at(m), "unknown-component", f"the component <{m[1][:40]}> does not exist"
            )
    if m := re.search(r"(?m)^\s*<<<.*|\son[a-z]+\s*=\s*[\"']", bare):
        yield _fault("deck.md", at(m), "forbidden", f"{m[0].strip()[:40]} is not allowed")
    if m := _PLACEHOLDER.search(bare):
        yield _fault("deck.md", at(m), "placeholder", f"the slide says {m[0]!r}")


def _loose(lines):
    """Whether the lines are frontmatter and nothing else."""
    keys = [m[1] for line in lines if (m := re.match(r"([A-Za-z][\w-]*):(?:\s|$)", line))]
    return bool(lines) and len(keys) == len(lines) and any(key in _KEYS for key in keys)


def _drop_math(text):
    """The text with formulas blanked."""
    text = re.sub(r"\$\$[^$]{0,5000}\$\$", lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    return re.sub(
        r"(?<![\\$\w])\$(?=[^\s$])[^$\n]{1,300}(?<=\S)\$(?!\w)", lambda m: " " * len(m[0]), text
    )


def _language(deck, asked):
    from types import SimpleNamespace

    from decksmith.judging import offline

    pages = SimpleNamespace(
        asks={"language": asked}, texts={s.no: deck_words.fold(s.text) for s in deck.shown}
    )
    value = offline.language(pages) if isinstance(asked, str) else None
    kind = "script" if str(asked).split("-")[0] in offline.SCRIPTS else "latin"
    if value is not None and value < LANGUAGE[kind]:
        yield _fault(
            "deck.md",
            1,
            "language",
            f"the text does not read as {asked} ({value:.2f}, least {LANGUAGE[kind]})",
        )


# --- what a rendered deck shows ---------------------------------------------------------------------------------------


def rendered(value, text):
    """The faults of a draft that its `render` value (docs/records.md) shows; `text` is the deck that was rendered."""
    from decksmith.decks import lint

    out = [
        _fault("deck.md", e.get("line") or 1, e["class"], e["message"].split("\n")[0])
        for e in value["errors"]
        if e["kind"] == "model"
    ]
    broken = {
        e.get("slide") for e in value["errors"]
    }  # what stands in for a slide that failed may overflow
    reach = {
        page["slide"]: max((page.get("overflow") or {}).values(), default=0)
        for page in value["xray"]
        if page["slide"] not in broken
    }
    for finding in lint.findings({"render": value}, text):
        rule, line = finding["rule"], finding["line"] or 1
        if rule in ("overflow", "off-canvas") and reach.get(finding["slide"], 0) > OVERFLOW_PX:
            out.append(
                _fault(
                    "deck.md", line, "overflow", f"slide {finding['slide']}: {finding['message']}"
                )
            )
        elif rule == "blank" and not any(f["line"] == line for f in out):
            out.append(
                _fault("deck.md", line, "blank", f"slide {finding['slide']}: {finding['message']}")
            )
    told = {f["message"].split(":")[0] for f in out if f["rule"] == "overflow"}
    for page in value["xray"]:  # what the page measures and no box explains
        slide, px = f"slide {page['slide']}", reach.get(page["slide"], 0)
        if px > OVERFLOW_PX and slide not in told:
            out.append(
                _fault(
                    "deck.md",
                    page["line"],
                    "overflow",
                    f"{slide}: content reaches {px:g} px past the slide",
                )
            )
    for fault in out:
        fault["remedy"] = STRICT.get(fault["rule"], "mend what the renderer names")
    return sorted(out, key=_place)


async def check(run, record, profile="strict", *, mend=False, pool=None, scratch=None):
    """The `check` value of a record: its draft against a profile, rendered where a render.Pool is given.

    Pictures and slides go to `<scratch>/<id>`, by default below `<run>/check`. `mend` first mends what is mechanical
    in the files themselves.
    """
    folder = Path(run) / record["draft"]["path"]
    fixed = fix(folder) if mend else []
    found = faults(folder, record["seed"], profile)
    value = {"profile": profile, "rendered": False, "faults": found, "fixed": fixed}
    if pool and not any(f["rule"] == "missing" and f["file"] == "deck.md" for f in found):
        render = await draw(folder / "deck.md", record["id"], pool, scratch or Path(run) / "check")
        value["rendered"] = True
        seen = {(f["line"], f["rule"]) for f in found}
        same = [
            f
            for f in rendered(render, (folder / "deck.md").read_bytes().decode(errors="replace"))
            if (f["line"], f["rule"]) not in seen
        ]
        value["faults"] = found = sorted(found + same, key=_place)
        ours = next((e for e in render["errors"] if e["kind"] != "model"), None)
        if ours and not found:
            value["error"] = ours
    if found:
        message = "{file}:{line}: {message}; {remedy}".format(**found[0])
        value["error"] = {"kind": "model", "class": found[0]["rule"], "message": message}
    return value


def feed(folders, run):
    """Put records of drafts' folders on stdin: the id is the folder's name, the path is relative to the run folder."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        for folder in map(Path, folders):
            path = os.path.relpath(folder.resolve(), Path(run).resolve())
            file.write(
                stream.dumps(
                    {"id": folder.resolve().name, "seed": seed(folder), "draft": {"path": path}}
                )
                + b"\n"
            )
        file.flush()
        file.seek(0)
        os.dup2(file.fileno(), 0)


def table(tally):
    """Lines that say how many drafts were kept and, by rule, how many of them each rule dropped; one draft may break
    several. `tally` counts kept, dropped, undecided, unwritten and `rule <name>`."""
    words = {
        "kept": "kept",
        "dropped": "dropped",
        "undecided": "undecided (a fault of ours)",
        "unwritten": "never written",
    }
    yield "drafts " + ", ".join(
        f"{tally[key]} {word}" for key, word in words.items() if tally[key] or key != "undecided"
    )
    rules = sorted(
        ((n, key[5:]) for key, n in tally.items() if key.startswith("rule ")),
        key=lambda r: (-r[0], r[1]),
    )
    yield from (f"{rule:>20} {number:5d}" for number, rule in rules)


async def draw(path, ident, pool, scratch):
    """The `render` value of the deck at `path`, with drawn pictures, under `<scratch>/<ident>`."""
    from decksmith.decks import pictures

    (scratch / ident).mkdir(parents=True, exist_ok=True)
    record = {"id": ident, "deck": {"path": os.path.relpath(path.resolve(), scratch.resolve())}}
    record["images"] = pictures.illustrate(scratch, record, pictures.providers("drawn"))
    return await pool.render(scratch, record)


def inputs(run, record, profile, engine=None):
    """What the `check` value of a record depends on."""
    folder, hashes = Path(run) / record["draft"]["path"], []
    for name in FILES:
        try:
            hashes.append(hashlib.sha256(read(folder / name)).hexdigest())
        except OSError:
            hashes.append(None)
    return [VERSION, profile, record["seed"], hashes, engine]


# --- mending ----------------------------------------------------------------------------------------------------------


def fix(folder):
    """Mend what is mechanical in a draft's files, each written whole or not at all; returns what was done as [{"file",
    "line", "rule", "message"}]."""
    done = []
    for name in FILES:
        path = Path(folder) / name
        try:
            before = read(path).decode()
        except (OSError, UnicodeDecodeError):
            continue
        text = before
        for step in _STEPS_OF[name]:
            text, said = step(text)
            done += [_fault(name, line, rule, message) for line, rule, message in said]
        if text != before:
            stream.write(path, text)
    return done


def _fix_encoding(text):
    said = []
    if text.startswith("\ufeff"):
        text = text[1:]
        said.append((1, "encoding", "byte order mark taken away"))
    if "\r" in text:
        said.append((_line(text, text.index("\r")), "encoding", "line ends made LF"))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, said


def _fix_fence(text):
    bare = text.strip()
    if not _fenced(bare):
        return text, []
    return "\n".join(bare.split("\n")[1:-1]).strip() + "\n", [
        (1, "prompt-fenced", "the fence around it taken away")
    ]


def _fix_tags(text):
    bare = re.sub(r"(?i)\A\s*<think(?:ing)?>\s*|\s*</think(?:ing)?>\s*\Z", "", text)
    return (
        (text, [])
        if bare == text
        else (bare.strip() + "\n", [(1, "tags", "think tags taken away")])
    )


def _fix_wrapped(text):
    from decksmith.decks import clean

    bare = clean.clean(text)[0]
    if not bare or bare.strip() == text.strip():
        return text, []
    return bare, [(1, "wrapped", "what stood around the deck taken away")]


def _fix_loose(text):
    """Frontmatter that a blank line parts from its separator."""
    said = []
    while loose := next(
        (
            s
            for s in Deck.parse(text).slides
            if s.frontmatter_line is None
            and s.no > 1
            and _loose([x for x in s.content.split("\n") if x.strip()])
            and s.content_line > s.start
        ),
        None,
    ):
        lines = text.split("\n")
        del lines[loose.start - 1 : loose.content_line - 1]
        said.append(
            (loose.start, "frontmatter-blank", "blank line before the frontmatter taken away")
        )
        text = "\n".join(lines)
    return text, said


def _fix_double(text):
    """A deck whose first frontmatter is followed by that of its first slide."""
    slides = Deck.parse(text).slides[:2]
    if (
        len(slides) < 2
        or not all(s.frontmatter for s in slides)
        or slides[0].content
        or slides[0].note
        or set(slides[0].frontmatter) & set(slides[1].frontmatter)
    ):
        return text, []
    lines = text.split("\n")
    close = next(i for i in range(slides[0].start, len(lines)) if lines[i].rstrip() == "---")
    del lines[close : slides[1].start]
    return "\n".join(lines), [
        (close + 1, "empty-slide", "two frontmatters at the beginning made one")
    ]


def _fix_trailing(text):
    said = []
    while (
        (last := Deck.parse(text).slides[-1:])
        and last[0].no > 1
        and last[0].frontmatter_line is None
        and not (last[0].content or last[0].note)
        and re.search(r"\n---[ \t]*\Z", text.rstrip())
    ):
        text = text.rstrip()[: text.rstrip().rindex("\n---")].rstrip() + "\n"
        said.append((_line(text, len(text)), "empty-slide", "trailing `---` taken away"))
    return text, said


_STEPS_OF = {
    "PROMPT.md": (_fix_encoding, _fix_fence),
    "think.md": (_fix_encoding, _fix_tags),
    "deck.md": (_fix_encoding, _fix_wrapped, _fix_loose, _fix_double, _fix_trailing),
}


# --- packing ----------------------------------------------------------------------------------------------------------


def prompts(name):
    """The text of assets/prompts/<name>, as a model gets it."""
    return (cli.ROOT / "assets" / "prompts" / name).read_text(encoding="utf-8").strip()


def system(cheatsheet=False):
    """The system message: the one of data/prompts.jsonl, and the cheat sheet below it where asked."""
    parts = [prompts("deck-system.txt")] + [prompts("slidev-cheatsheet.md")] * bool(cheatsheet)
    return "\n\n".join(parts)


def instructions():
    """INSTRUCTIONS.md of an author's folder: the task, the strict rules as they are checked, the cheat sheet."""
    rules = "\n".join(
        f"- {rule}: {remedy.replace(' (--fix does it)', '')}" for rule, remedy in STRICT.items()
    )
    return (
        prompts("author-instructions.md").replace("{rules}", rules)
        + "\n\n"
        + prompts("slidev-cheatsheet.md")
        + "\n"
    )


def has_cheatsheet(ident, share=CHEATSHEET):
    """Whether the row of this id gets the cheat sheet: a coin thrown by the id's hash, so that no row moves another."""
    return (
        int.from_bytes(hashlib.sha256(f"cheatsheet:{ident}".encode()).digest()[:8]) < share * 2**64
    )


def row(run, record, *, cheatsheet=CHEATSHEET, counter=None):
    """The chat row of a checked record (docs/records.md). `counter(text) -> tokens`; without it they are estimated."""
    found, lacks = texts(Path(run) / record["draft"]["path"])
    if lacks:
        raise cli.BadData(f"{record['id']}: {lacks[0]['file']}: {lacks[0]['message']}")
    prompt, think, deck = (found[name].strip() for name in FILES)
    sheet = has_cheatsheet(record["id"], cheatsheet)
    instructions = system(sheet)
    count = counter or (lambda text: -(-len(text.encode()) * 10 // int(BYTES_PER_TOKEN * 10)))
    tokens = {
        "prompt": count(instructions) + count(prompt),
        "reasoning": count(think),
        "deck": count(deck),
    }
    return {
        "id": record["id"],
        "messages": [
            {"role": "system", "content": instructions},
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": deck, "reasoning_content": think},
        ],
        "seed": record["seed"],
        "tokens": {**tokens, "total": sum(tokens.values()), "estimated": counter is None},
        "by": {
            "author": record["draft"].get("author"),
            "usage": record["draft"].get("usage"),
            "seed": {key: (record.get("by") or {}).get(key) for key in ("model", "cost")}
            if record.get("by")
            else None,
            "cheatsheet": sheet,
            "system": hashlib.sha256(instructions.encode()).hexdigest(),
        },
    }


def tokenizer(path):
    """A function text -> tokens by a tokenizer.json. Raises cli.Missing, cli.BadConfig."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise cli.Missing(
            "the package tokenizers is not installed; without --tokenizer the tokens are estimated"
        ) from None
    try:
        known = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain Exception
        raise cli.BadConfig(f"{path}: {error}") from None
    return lambda text: len(known.encode(text, add_special_tokens=False).ids)


def histogram(totals, limit=LIMIT, width=40):
    """The lengths of rows as lines of text, in eighths of the limit; all that is longer stands in the last line."""
    step = -(-limit // 8)
    bins = [0] * 9
    for total in totals:
        bins[min((max(total, 1) - 1) // step, 8)] += 1
    most = max(bins) or 1
    names = [f"{i * step + 1}-{min((i + 1) * step, limit)}" for i in range(8)] + [f"over {limit}"]
    return [
        f"{name:>12} {n:5d} {'#' * -(-n * width // most)}".rstrip()
        for name, n in zip(names, bins, strict=True)
    ]
