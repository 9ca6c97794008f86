"""Decks that nobody would write, drawn by hypothesis from what Slidev, its compiler and a page read: `decks(number, seed)`, always the same."""

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

KEYS = """theme title titleTemplate info author keywords layout class clicks clicksStart name routeAlias transition background image
backgroundSize level hideInToc hide disabled zoom preload dragPos drawings fonts htmlAttrs seoMeta aspectRatio canvasWidth themeConfig
defaults colorSchema lineNumbers monaco twoslash mdc comark selectable record favicon exportFilename download codeCopy magicMoveDuration
magicMoveCopy duration timer wakeLock routerMode presenter browserExporter css url columns growX growSeed style key ref is id slot
__proto__ constructor toString hasOwnProperty length << 1 - '' "" ? v-if :a @a true null""".split()
LAYOUTS = "cover center default end fact full image image-left image-right intro none quote section statement two-cols two-cols-header iframe 404 error nosuch __proto__".split()
THEMES = "default default default seriph apple-basic dracula nosuch ./x".split()
SCALARS = """0 -1 1.5 .inf -.inf .nan 1e999 0x7fffffffffffffffffffffffff 99999999999999999999999999 0o17 null ~ true no 2020-01-01 !!timestamp_2020-01-01
!!binary_aGVsbG8= !!binary_% !!set_{a,b} !!omap_[a:_1] !!int_x !!float_x !foo_x !<tag:yaml.org,2002:str>_1 !!js/function_x *a *nosuch &a_1 &a_[*a] &a_{b:_*a}
&a_[1,_*a,_*a] {<<:_*a} [[[[]]]] {a:_{b:_{c:_1}}} {__proto__:_{a:_1}} {toString:_1} [1,_[2],_{a:_3}] {{a:_1}:_2} ? ?_a | > |2 @x `x` %x 'x "x {x [x <b>x</b> {{_x_}}
images/none.png https://example.com/x.png a:_b 'it''s' "\\ud800" "\\0" "\\x07" 1/2 16/9 -,- #x""".split()
LANGUAGES = "js ts python md vue html yaml diff text nosuch mermaid plantuml latex js:line-numbers json5 c++ C#".split()
OPTIONS = "{1} {1|2|x} {*} {1-99999} {0} {all|none} {*}{lines:true} {*}{lines:true,startLine:'x'} {a: {at:4} {monaco} {monaco-run} twoslash [x.ts] {maxHeight:1} {1}{".split()
TAGS = """Toc Arrow AutoFitText LightOrDark Link PoweredBySlidev RenderWhen SlideCurrentNo SlidesTotal TitleRenderer Transform VSwitch VDrag VDragArrow v-click v-clicks
v-after v-switch v-drag SlidevVideo Youtube Tweet BlueSky Monaco Mermaid PlantUml CodeBlockWrapper CodeGroup ShikiMagicMove KaTexBlockWrapper component slot template
transition keep-alive teleport suspense div b svg math table tr td p a img video style textarea pre p-x mdi-home carbon-none twemoji-x constructor __proto__ A""".split()
ATTRIBUTES = """at="x" at="-1" :at="[1,2]" :at="null" depth="x" every="0" columns="x" :columns="{}" scale="x" :scale="-1" x1="a" width="1e9" :width="NaN" :to="{}" to="999999" mode="x"
v-if v-if="" v-else v-for="a in" v-for="a in 3" v-for="a in null" v-model="x" v-bind="{}" v-bind="null" v-bind="$attrs" v-slot:x v-slot="{" #x #[x] :key="{}" ref="x" :ref="null"
v-mark="{}" v-mark.x="[1]" v-motion :initial="1" v-drag="1" v-click="{}" v-click="[1,'x']" v-click.hide="-1" :class="[[]]" :style="1" is="x" is="" :is="null" v-html="1" v-text="a" v-once
v-memo="1" v-pre v-cloak v-nosuch:a.b="1" :a.prop="1" :[a]="1" on-x="1" slot="x" code-lz="x" :ranges="1" steps-lz="x" =x "x <y a=b=c""".split(
    "\n"
)
EXPRESSIONS = "a a.b $x $nav.x $frontmatter.a.b $slidev.configs.x.y ( [ ...a a=>b `${ async() await_1 new_X class_{} /(/ 1/0 {a:1} a;b function(){ import.meta this window $clicks++ Object.create(null) Symbol() 1n".split()
FORMULAS = r"\frac{1}{ \frac \badmacro{x} \def\a{\a}\a \rule{1e9em}{1em} \href{x}{y} \text{$x$} \begin{matrix}1&2\end{matrix} \begin{x} \unicode{x} ^^ _ & \\ \sqrt[ {{ }} < \color{red}x \tag{1} \newcommand{\x}{1} \htmlClass{a}{b} 珊 \left( \ce{H2O}".split()
DIAGRAMS = [
    "graph LR\n A-->B",
    "graph",
    "nosuch",
    "sequenceDiagram\n A->>B: x\n loop x",
    "gantt\n title x\n dateFormat X\n a: 1, 2",
    "pie\n 'a': x",
    "classDiagram\n class A{",
    "%%{init: {'theme': 1}}%%\ngraph LR\n A",
    "---\ntitle: x\n---\ngraph LR\n A",
    "mindmap\n  a\n    b",
    "erDiagram\n A ||--o{ B : x",
    "graph LR\n A[<b>x] --> B{{x}}",
    "stateDiagram-v2\n [*] --> A",
    "xychart-beta\n line [1,",
    "graph LR\n click A call x()",
    "",
]

letters = st.characters(exclude_categories=["Cs"])
words = st.one_of(
    st.text(letters, max_size=30),
    st.sampled_from(
        [
            "text",
            "\u202e",
            "\u2028",
            "\0",
            "\ufeff",
            "a\u0301" * 50,
            "\U0001f468\u200d" * 9,
            "&nbsp;",
            "&#0;",
            "<",
            "{{",
            "}}",
            "::",
            "---",
            "***",
            "```",
            "$$",
            "\\",
            "[^1]",
            "[x](y)",
            "![x](y)",
            "|a|b|\n|-|-|",
        ]
    ),
)
oneline = words.map(lambda text: " ".join(text.split("\n")))
scalar = st.one_of(
    st.sampled_from(SCALARS).map(lambda text: text.replace("_", " ")),
    st.sampled_from(LAYOUTS),
    oneline,
    st.integers().map(str),
    st.floats().map(str),
    st.integers(1, 3).map(lambda power: "x" * 10 ** (power + 1)),
    st.integers(1, 400).map(lambda depth: "[" * depth + "]" * depth),
)
pair = st.one_of(
    st.tuples(st.sampled_from(KEYS), scalar),
    st.tuples(st.just("layout"), st.sampled_from(LAYOUTS)),
    st.tuples(oneline, scalar),
).map(lambda two: f"{two[0]}: {two[1]}")
head = st.lists(pair, max_size=5)
attributes = st.lists(
    st.sampled_from([word for line in ATTRIBUTES for word in line.split('" ')]).map(
        lambda word: word if word.count('"') != 1 else word + '"'
    ),
    max_size=3,
)


def fence(two, body):
    return f"```{' '.join(two)}\n{body}\n```"


code = st.tuples(st.tuples(st.sampled_from(LANGUAGES), st.sampled_from(["", *OPTIONS])), words).map(
    lambda both: fence(*both)
)
element = st.tuples(st.sampled_from(TAGS), attributes, words, st.booleans(), st.integers(0, 9)).map(
    lambda it: (
        f"<{it[0]} {' '.join(it[1])}{'/>' if it[3] else f'>{it[2]}'}{'' if it[3] or not it[4] else f'</{it[0]}>'}"
    )
)
expression = st.sampled_from(EXPRESSIONS).map(lambda text: text.replace("_", " "))
block = st.one_of(
    words,
    oneline.map(lambda text: f"# {text}"),
    st.lists(oneline, min_size=1, max_size=4).map(
        lambda rows: "\n".join(f"- {row}" for row in rows)
    ),
    code,
    code,
    element,
    element,
    element,
    st.tuples(
        st.sampled_from(["{at:4}", "", "{lines: true}", "{at:"]), st.lists(code, max_size=3)
    ).map(lambda it: f"````md magic-move {it[0]}\n" + "\n".join(it[1]) + "\n````"),
    st.sampled_from(FORMULAS).map(lambda text: f"${text}$"),
    st.lists(st.sampled_from(FORMULAS), max_size=3).map(
        lambda rows: "$$\n" + "\n".join(rows) + "\n$$"
    ),
    st.tuples(
        st.sampled_from(DIAGRAMS),
        st.sampled_from(["", "{scale: 0.5}", "{scale: {}}", "{theme: 'x'}", "{"]),
    ).map(lambda it: fence(("mermaid", it[1]), it[0])),
    expression.map(lambda text: f"x {{{{ {text} }}}}"),
    expression.map(lambda text: f'<b :title="{text}" v-if="{text}">x</b>'),
    st.sampled_from(
        [
            "::right::",
            "::default::",
            "::__proto__::",
            "<!-- note",
            "<!-- note -->",
            "[^1]: x",
            "<style>\nh1 { @apply x; color: theme('x') }\n</style>",
            "<style>a{",
            "<style scoped lang='scss'>$a: 1;</style>",
            "<style>\n@media x { & b { } }\n:deep(a), ::v-slotted(b) {}\n</style>",
            "> [!NOTE]\n> x",
            ":::tip\nx\n:::",
            "<<< @/x",
            "[[toc]]",
            "{.a #b}",
            ":span[x]{.a}",
            "</div>",
            "</template>",
        ]
    ),
    st.tuples(words, st.integers(0, 3)).map(lambda it: (it[0] + "\n") * 10 ** it[1]),
    st.tuples(element, st.integers(0, 300)).map(lambda it: it[0] * it[1]),
)


@st.composite
def deck(draw):
    """The text of a deck: at most four slides."""
    theme = draw(st.sampled_from(THEMES))
    text = "---\n" + "\n".join([f"theme: {theme}", *draw(head)]) + "\n---\n\n"
    for number in range(draw(st.integers(1, 4))):
        own = draw(head) if number else []
        text += (
            (
                "\n---\n" + "".join(f"{row}\n" for row in own) + "---\n\n" * bool(own)
                if number
                else ""
            )
            + "\n\n".join(draw(st.lists(block, min_size=1, max_size=4)))
            + "\n"
        )
    return text


def decks(number, which):
    """`number` texts; the same for the same numbers and version of hypothesis."""
    found = []

    @seed(which)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(deck())
    def collect(text):
        found.append(text)

    collect()
    return found[:number]
