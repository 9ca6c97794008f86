"""What the slides of a PowerPoint file share, moved to its layouts and its master: whoever changes the master changes the slides."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from copy import deepcopy

from lxml import etree
from lxml.etree import _Element as Element
from pptx.enum.shapes import PP_PLACEHOLDER
from pptx.oxml.ns import qn
from pptx.presentation import Presentation as Show

PLAIN = ("Title and Content", "Two Content", "Title Only")  # whose title is the master's
# What shapes, paragraphs and runs may share, in the order that the format asks for.
_BULLETS, _FILLS = "buNone buAutoNum buChar", "solidFill gradFill noFill"
_ORDER = ("xfrm", "lnSpc", "spcBef", "spcAft", "buClr", "buFont", _BULLETS, _FILLS, "latin", "cs")
_KINDS = [{qn(f"a:{tag}") for tag in tags.split()} for tags in _ORDER]


def share(show: Show) -> None:
    """Move to the master, then to each layout, where the texts in their places stand and how they look."""
    texts: defaultdict[tuple[str, int], list[Element]] = defaultdict(list)
    for slide in show.slides:
        for shape in slide.placeholders:
            if shape.has_text_frame:
                place = slide.slide_layout.name, shape.placeholder_format.idx
                texts[place].append(shape._element)
    master = show.slide_master
    for tag, is_title in (("p:titleStyle", True), ("p:bodyStyle", False)):
        found = [one for (_, at), some in texts.items() for one in some if (at == 0) == is_title]
        _share_look(master._element.find(f"{qn('p:txStyles')}/{qn(tag)}"), found)
    plain = [one for name in PLAIN for one in texts[name, 0]]
    for kind, found in ((PP_PLACEHOLDER.TITLE, plain), (PP_PLACEHOLDER.BODY, texts[PLAIN[0], 1])):
        if base := master.placeholders.get(kind):
            _share(base._element.spPr, [one.spPr for one in found])
    for (name, at), found in texts.items():
        layout = next(one for one in show.slide_layouts if one.name == name)
        if base := layout.placeholders.get(at):
            _share_look(base._element.find(f".//{qn('a:lstStyle')}"), found)
            for tag in (f".//{qn('p:spPr')}", f".//{qn('a:bodyPr')}"):
                _share(base._element.find(tag), [one.find(tag) for one in found])


def _share_look(style: Element, shapes: Iterable[Element]) -> None:
    """Move to a list style what the paragraphs of a level, and their runs, have alike."""
    levels: defaultdict[int, list[Element]] = defaultdict(list)
    for shape in shapes:
        for about in shape.iter(qn("a:pPr")):
            levels[int(about.get("lvl", 0)) + 1].append(about)
    for level, paragraphs in sorted(levels.items()):
        tag = qn(f"a:lvl{level}pPr")
        if (held := style.find(tag)) is None:
            held = etree.SubElement(style, tag)
        held.clear()
        _share(held, paragraphs)
        runs = [run for one in paragraphs for run in one.getparent().iter(qn("a:rPr"))]
        _share(etree.SubElement(held, qn("a:defRPr")), runs)


def _share(held: Element, elements: Sequence[Element]) -> None:
    """Move to `held` each attribute and each kind of child that all elements have, as most have it; the others keep theirs."""
    for name in elements[0].keys() if elements else []:
        values = Counter(one.get(name) for one in elements)
        if None not in values and name != "lvl":
            held.set(name, most := values.most_common(1)[0][0])
            for one in elements:
                if one.get(name) == most:
                    del one.attrib[name]
    for tags in reversed(_KINDS):
        children = [child for one in elements for child in one if child.tag in tags]
        if children and len(children) == len(elements):
            for old in [child for child in held if child.tag in tags]:
                held.remove(old)
            most = Counter(map(etree.tostring, children)).most_common(1)[0][0]
            alike = [child for child in children if etree.tostring(child) == most]
            held.insert(0, deepcopy(alike[0]))
            for child in alike:
                child.getparent().remove(child)
