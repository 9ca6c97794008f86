"""Our merging of recipes and NeMo-RL's own, held against each other: TRAINERS has a clone of it, as `make rl-faults` makes them."""

import os
import random
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml
from decksmith.core import cli
from decksmith.train.training import preflight, recipes
from omegaconf import OmegaConf

CLONE = Path(os.environ.get("TRAINERS") or cli.ROOT / "results/trainers") / "RL"
IN_IMAGE = "/opt/nemo-rl/"
OURS = ("nemotron-nano-lora", "nemotron-nano-dpo", "nemotron-nano-grpo", "lora")
pytestmark = pytest.mark.skipif(
    not CLONE.exists(), reason="no clone of NeMo-RL: TRAINERS=/path (make rl-faults makes one)"
)


def git(*arguments):
    return subprocess.check_output(["git", "-C", CLONE.resolve(), *arguments])


@pytest.fixture(scope="module", params=["v0.7.0", "HEAD"])
def theirs(request, tmp_path_factory):
    """(its load_config, the folder of its examples) at a tag."""
    folder = tmp_path_factory.mktemp("nemo-rl")
    packed = git("archive", request.param, "examples/configs", "nemo_rl/utils/config.py")
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    missing = ["hydra._internal.config_loader_impl", "hydra.core.override_parser.overrides_parser"]
    names = {".".join(name.split(".")[: n + 1]) for name in missing for n in range(4)}
    try:  # hydra is for what stands on a command line
        for name in names - set(sys.modules):
            sys.modules[name] = types.ModuleType(name)
        sys.modules[missing[0]].ConfigLoaderImpl = sys.modules[missing[1]].OverridesParser = object
        (folder / "empty.yaml").write_text("{}")
        recipes.load(folder / "empty.yaml")  # registers the resolvers that theirs has
        code: dict = {"__name__": "config"}
        source = (folder / "nemo_rl/utils/config.py").read_text()
        exec(compile(source, "config.py", "exec"), code)
    finally:
        for name in names:
            sys.modules.pop(name, None)
    return code["load_config"], folder


def loaded(load_config, path):
    return OmegaConf.to_container(load_config(path), resolve=True)


def tree(rng, depth, first=False):
    """A section of a few names, so that two of them meet; marks at any depth."""
    made = {}
    for name in rng.sample("abcd", rng.randint(1, 4)):
        if depth and rng.random() < 0.7:
            made[name] = tree(rng, depth - 1)
        else:  # v0.7.0 ends on a gap at the first level
            rest = [1, None, "x", [1, {"a": 2}], {}, *([] if first else ["???"])]
            made[name] = rng.choice(rest)
    if rng.random() < 0.4:
        made["_override_"] = rng.random() < 0.8
    return made


@pytest.mark.parametrize("seed", range(60))
def test_generated_parents_and_children_are_merged_as_theirs(theirs, tmp_path, seed):
    rng = random.Random(seed)
    (tmp_path / "eldest.yaml").write_text(yaml.safe_dump(tree(rng, 3, True)))
    for name, parents in (("old", ["eldest.yaml"]), ("other", None), ("own", ["old.yaml"])):
        made = tree(rng, 3, True)
        if parents:
            made["defaults"] = parents + (["other.yaml"] if name == "own" else [])
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(made))
    path = tmp_path / "own.yaml"
    try:
        expected = loaded(theirs[0], path)
    except TypeError:  # a list over a section
        with pytest.raises(cli.BadConfig, match="incompatible"):
            recipes.load(path)
    else:
        assert recipes.load(path) == expected


@pytest.mark.parametrize("name", OURS)
def test_a_recipe_of_ours_leaves_nothing_of_what_it_replaces(theirs, tmp_path, name):
    load_config, folder = theirs
    text = (recipes.RECIPES / f"{name}.yaml").read_text()
    path = tmp_path / "recipe.yaml"
    path.write_text(text.replace(IN_IMAGE, f"{folder}/"))
    found = loaded(load_config, path)
    assert recipes.load(path) == found
    assert not [key for key, _ in preflight.leaves(found) if key.endswith("_override_")]
    for side in ("train", "validation"):
        assert set(found["data"][side]) == {"dataset_name", "data_path"}
    hub = found["policy"]["dtensor_cfg"]["automodel_kwargs"]
    assert hub == ({} if name == "lora" else {"force_hf": True})


def test_what_differs_from_the_published_dpo_is_what_the_page_says(theirs, tmp_path):
    load_config, folder = theirs
    path = tmp_path / "recipe.yaml"
    text = (recipes.RECIPES / "nemotron-nano-dpo.yaml").read_text()
    path.write_text(text.replace(IN_IMAGE, f"{folder}/"))
    ours = loaded(load_config, path)
    published = "examples/configs/recipes/llm/dpo-nanov3-30B3AB-1n8g-fsdp8ep8-automodel.yaml"
    nvidia = loaded(load_config, folder / published)
    ours_flat, nvidia_flat = (dict(preflight.leaves(one["policy"])) for one in (ours, nvidia))
    differing = {key for key in nvidia_flat if ours_flat.get(key, ...) != nvidia_flat[key]}
    known = ("model_name", "tokenizer", "max_total_sequence_length", "scheduler", "optimizer")
    known += (
        "hf_config_overrides",
        "dtensor_cfg.lora_cfg",
        "dtensor_cfg.automodel_kwargs",
        "dtensor_cfg.expert_parallel",
    )
    assert not [key for key in differing if not key.startswith(known)], differing
