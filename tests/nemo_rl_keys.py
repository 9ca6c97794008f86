"""Write assets/recipes/nemo-rl-keys-ALGORITHM.txt: the names of the keys that one version of NeMo-RL takes, read from its sources.

  python3 tests/nemo_rl_keys.py CHECKOUT v0.7.0 sft > assets/recipes/nemo-rl-keys-sft.txt
  bin/within train python3 tests/nemo_rl_keys.py /opt/nemo-rl v0.7.0 dpo > assets/recipes/nemo-rl-keys-dpo.txt

CHECKOUT has nemo_rl and examples; its version is that of the tag of the train image in containers/images.lock (commit 19244a09,
of which the released image is reported to be made, calls itself 0.6.0; its keys are those of the tag). Nothing of it is imported: the classes of its configuration are parsed, and the keys of
the algorithm's examples (EXAMPLES) and the parameters of the data set's class are added.
"""

import argparse
import ast
import textwrap
from collections import defaultdict
from pathlib import Path

import yaml

# Sections of other backends, in which every key is taken: ours trains by DTensor and generates by vLLM, of which NeMo Gym's own
# settings and vLLM's are theirs.
OTHERS = {
    "sft": (
        "policy.generation",
        "policy.megatron_cfg",
        "policy.draft",
        "policy.pretrained_checkpoint",
    ),
    "grpo": (
        "policy.generation.mcore_generation_config",
        "policy.generation.sglang_cfg",
        "policy.generation.vllm_kwargs",
        "policy.generation.vllm_cfg.http_server_serving_chat_kwargs",
        "policy.megatron_cfg",
        "policy.draft",
        "policy.pretrained_checkpoint",
        "env.nemo_gym",
        "data_plane",
    ),
}
OTHERS["dpo"] = OTHERS["sft"]
EXAMPLES = {
    "sft": ("configs/sft.yaml",),
    "dpo": ("configs/dpo.yaml",),
    "grpo": ("configs/grpo_math_1B.yaml", "nemo_gym/grpo_nanov3.yaml"),
}
DATASETS = {"sft": "OpenAIFormatDataset", "dpo": "PreferenceDataset", "grpo": "NemoGymDataset"}
HEAD = """\
# NeMo-RL {version}: the keys that its {name} takes, so that one that it would ignore is refused: it accepts any in silence. Names only, from
# github.com/NVIDIA-NeMo/RL, by tests/nemo_rl_keys.py. Below NAME.* every key is taken. The train image of containers/images.lock is of
# the same version.
"""


def classes(root: Path) -> dict[str, ast.ClassDef]:
    """{name: class} of all modules."""
    found = {}
    for path in sorted((root / "nemo_rl").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, node)
    return found


def names(annotation: ast.expr) -> set[str]:
    """What an annotation names: `NotRequired[list[A] | None]` gives NotRequired, list, A."""
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


def walk(
    name: str, at: str, known: dict[str, ast.ClassDef], keys: set[str], algorithm: str
) -> None:
    """Add the keys of a class of the configuration below `at`; NAME.* where any is taken."""
    for field in known[name].body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        key = f"{at}{field.target.id}"
        inside = names(field.annotation)
        # Those of preference data are another algorithm's.
        sections = [
            each
            for each in sorted(inside)
            if each in known and (algorithm == "dpo" or "Preference" not in each)
        ]
        if key in OTHERS[algorithm] or (not sections and inside & {"dict", "Any"}):
            keys.add(f"{key}.*")
        elif sections:
            for section in sections:
                walk(section, f"{key}.", known, keys, algorithm)
        else:
            keys.add(key)


def leaves(section: dict, at: str = "") -> list[str]:
    """The dotted names of a mapping's leaves."""
    found = []
    for key, value in section.items():
        inner = isinstance(value, dict) and value
        found += leaves(value, f"{at}{key}.") if inner else [f"{at}{key}"]
    return found


def parameters(known: dict[str, ast.ClassDef], name: str) -> list[str]:
    """The named parameters of a class's constructor."""
    for node in known[name].body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return [argument.arg for argument in node.args.args if argument.arg != "self"]
    raise SystemExit(f"{name} has no constructor")


def collect(root: Path, algorithm: str) -> set[str]:
    """All keys; NAME.* for a section in which any is taken."""
    known, keys = classes(root), set()
    walk("MasterConfig", "", {**known, "MasterConfig": master(root, algorithm)}, keys, algorithm)
    free = tuple(key.removesuffix("*") for key in keys if key.endswith(".*"))
    for example in EXAMPLES[algorithm]:
        for key in leaves(yaml.safe_load((root / "examples" / example).read_text())):
            section = next(
                (one for one in OTHERS[algorithm] if f"{key}.".startswith(f"{one}.")), None
            )
            if section:
                keys.add(f"{section}.*")
            elif not f"{key}.".startswith(free):
                keys.add(key)
    for side in ("train", "validation"):
        names_of = parameters(known, DATASETS[algorithm])
        keys |= {f"data.{side}.{name}" for name in names_of}
    return keys


def master(root: Path, algorithm: str) -> ast.ClassDef:
    """The algorithm's own MasterConfig; others have one of that name too."""
    tree = ast.parse((root / f"nemo_rl/algorithms/{algorithm}.py").read_text())
    return next(
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "MasterConfig"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("version")
    parser.add_argument("algorithm", choices=EXAMPLES)
    given = parser.parse_args()
    root = given.checkout
    print(HEAD.format(version=given.version, name=given.algorithm.upper()), end="")
    sections = defaultdict(list)
    for key in sorted(collect(root, given.algorithm)):
        section, _, name = key.removesuffix(".*").rpartition(".")
        sections[section].append(name + ".*" * key.endswith(".*"))
    for section, found in sections.items():
        for line in textwrap.wrap(" ".join(found), 138 - len(section)):
            print(f"{section}: {line}")


if __name__ == "__main__":
    main()
