"""make/completion.sh in real shells on a real terminal: what the tab key makes of a line."""

import os
import pty
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A line as it is typed, and what the shell would run.
LINES = [
    ("make basel\t", "make baseline "),
    ("make baseline PROTO\tpubl\t", "make baseline PROTOCOL=published "),
    ("make baseline MODEL=smollm\t", "make baseline MODEL=smollm3-3b "),
    ('make baseline MODEL="smol smollm\t', "make baseline MODEL=smol smollm3-3b "),
    ("make conditions CONDITION=few-shot+rev\t", "make conditions CONDITION=few-shot+revise "),
    ("make bench BENCH=gsm\t", "make bench BENCH=gsm8k "),
    ("make sft RECIPE=smol-l\t", "make sft RECIPE=smol-lora "),
    ("make demo TEMPLATE=\t", "make demo TEMPLATE=data/templates/company.md "),
    ("make baseline PROMPTS=data/train\t", "make baseline PROMPTS=data/training-prompts.jsonl "),
    ("bin/chat-generate --conditi\tfew\t", "bin/chat-generate --condition few-shot "),
    ("bin/model-serve --engi\tl\t", "bin/model-serve --engine local "),
]


def typed(shell, setup, lines, **more):
    """What `echo` in front of each line prints. A shell that completes draws its prompt anew: the
    next line waits for the answer too, or else what the terminal shows of it lies in the answer."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(ROOT)
        env = {"PATH": os.environ["PATH"], "TERM": "dumb", "IMAGES": "off", **more}
        os.execvpe(shell[0], shell, env)
    said, seen, answered = b"", 0, rb"ready> "
    set_up = [f"{line}; echo '[]'" for line in setup]
    for line in [*set_up, *(f"{line}\x01echo '['\x05']'" for line, _ in lines), "exit"]:
        while not re.search(answered, said[seen:]):
            said += os.read(terminal, 65536)
        seen, answered = len(said), rb"(?ms)^\[[^\n]*\]\r?$.*ready> "
        os.write(terminal, f"{line}\n".encode())
    try:
        while block := os.read(terminal, 65536):
            said += block
    except OSError:  # the shell has ended
        pass
    os.waitpid(process, 0)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode())
    answers = [line[1:-1].strip() for line in re.findall(r"(?m)^(\[.*\])\r?$", text)]
    return answers[len(setup) :]


def test_bash(tmp_path):
    shell = ["bash", "--norc", "--noprofile", "-i"]
    setup = ["bind 'set enable-bracketed-paste off'", "source make/completion.sh"]
    found = typed(shell, setup, LINES, PS1="ready> ", HOME=str(tmp_path))
    assert found == [made.strip() for _, made in LINES]


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh")
def test_zsh(tmp_path):
    (tmp_path / ".zshrc").write_text("PS1='ready> '; unsetopt prompt_sp; bindkey -e\n")
    setup = ["source make/completion.sh"]
    found = typed(["zsh", "-i"], setup, LINES, PS1="ready> ", HOME=str(tmp_path))
    assert found == [made.strip() for _, made in LINES]
