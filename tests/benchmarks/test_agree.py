"""The page that compares our graders with the official ones (`make bench-agree`), without their toolchain."""

import sys

import pytest
from decksmith.core import cli

sys.path.insert(0, str(cli.ROOT / "tests"))

import agree  # noqa: E402
import agree_replies  # noqa: E402


@pytest.mark.slow
def test_each_class_is_of_forms_that_are_tried():
    forms = {kind: {reply.form for reply in agree.rows(kind, 2000)[0]} for kind in agree.BENCH}
    for each in agree.CLASSES:
        assert set(each.forms) <= forms[each.kind], each.forms
    assert agree_replies.replies("math", 300) == agree_replies.replies("math", 300)
    assert all("<" not in reply.expected for reply in agree_replies.replies("math", 300))


def test_the_page_counts_what_the_two_say_and_names_what_nobody_explained():
    replies = [
        agree_replies.Reply("\\fbox", "7", "So \\fbox{7}.", True),
        agree_replies.Reply("another integer", "7", "So \\boxed{8}.", False),
        agree_replies.Reply("\\dfrac for \\frac", "1", "|", None),
    ]
    found = agree.Compared("math", replies, [True, True, None], [False, True, True], [1.0, 2.0])
    page = agree.page([found], ["ifeval"])
    numbers = "| 3 | 1 (33.3 %) | 1 | 0 | 1 | 0 | 1 | 0 | 1 | 2 | 1 of 2 | 0 of 2 |"
    assert f"| mathematics | math_with_judge {numbers}" in page
    assert "HumanEval and MBPP: not compared; the official verifier" in page
    assert "IFEval: not compared; its verifier needs packages that PyPI does not have" in page
    assert "| ours | 1 | Their server gives 0 before" in page and "`` So \\fbox{7}. ``" in page
    assert "| theirs | 1 | Unexplained: \\dfrac for \\frac. |" in page and "`` \\| ``" in page
    assert "Unexplained: 1." in page
