#!/usr/bin/env python3
"""What a policy would learn from decks that nobody could measure, by each trainer's own code of advantages.

  make rl-faults TRAINERS=/path    /path has clones of RL, slime, miles and verl; what is not there is cloned from GitHub

In groups of eight answers a share of the rewards is lost, and comes as zero or as our doors give it (the mean of the others of its
prompt). The functions called are the trainers' own, at the tags below, and TRL's trainer as it is installed; modules that they
import and that are not here are empty stand-ins. Printed of each: `a fault` is the mean size of what a lost deck is trained by,
in units of what a measured one is (0 is right); `others off` how far the others are from what they would be without the lost
decks, in the same units; `turned` the share of the others that are pushed the other way.
"""

import argparse
import importlib.abc
import importlib.machinery
import multiprocessing
import random
import statistics
import subprocess
import sys
import tempfile
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARES = (0.05, 0.25, 0.9)
GROUPS, SAMPLES = 200, 8
HOMES = {"RL": "NVIDIA-NeMo/RL", "slime": "THUDM/slime", "miles": "radixark/miles"}
HOMES |= {"verl": "volcengine/verl", "Automodel": "NVIDIA-NeMo/Automodel"}


class Anything:
    """Stands for whatever is asked of a module that is not here; as a decorator it changes nothing."""

    def __call__(self, *given, **named):
        plain = len(given) == 1 and not named and isinstance(given[0], type | types.FunctionType)
        return given[0] if plain else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key):
        return self

    def __iter__(self):
        return iter(())

    def __or__(self, other):
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases):
        return ()


# Modules of trainers that want another version of a package than the one here, and have no part in advantages.
OTHERS = ("nemo_rl.models", "nemo_rl.utils.logger")


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what nobody else does, for modules of a folder: what others do without is not here."""

    def __init__(self, folder):
        self.folder, self.made = str(folder), set(OTHERS)

    def find_spec(self, name, path=None, target=None):
        if any(f"{name}.".startswith(f"{other}.") for other in OTHERS):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if name in sys.builtin_module_names or importlib.machinery.PathFinder.find_spec(name, path):
            return None
        frame = sys._getframe(1)
        while frame and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        inside = frame and frame.f_code.co_filename.startswith(self.folder)
        if not inside and name.rpartition(".")[0] not in self.made:
            return None
        self.made.add(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = Anything().__getattr__
        return module

    def exec_module(self, module):
        pass


def source(trainers, name, tag):
    """A folder with the sources of a trainer at a tag, from a clone in `trainers`."""
    clone = trainers / name
    if not clone.exists():
        command = ["git", "clone", "--quiet", "--filter=blob:none", "--no-checkout"]
        subprocess.run([*command, f"https://github.com/{HOMES[name]}", clone], check=True)
    folder = Path(tempfile.mkdtemp())
    packed = subprocess.Popen(["git", "-C", clone, "archive", tag], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], stdin=packed.stdout, check=True)
    return folder


# Each gives the advantages of groups of rewards, by the code of a trainer


class Settings(dict):
    """Keys as the older code reads them, attributes as the newer does."""

    __getattr__ = dict.__getitem__


def nemo_rl(groups):
    import torch
    from nemo_rl.algorithms.advantage_estimator import GRPOAdvantageEstimator

    settings = Settings(use_leave_one_out_baseline=True, normalize_rewards=True)
    prompts = torch.tensor([[n] for n, group in enumerate(groups) for _ in group])
    rewards = torch.tensor([reward for group in groups for reward in group])
    mask = torch.ones(len(rewards), 1)
    found = GRPOAdvantageEstimator(settings, {}).compute_advantage(prompts, rewards, mask)
    return split(found[:, 0].tolist(), groups)


def verl(groups):
    import numpy
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rewards = torch.tensor([[reward] for group in groups for reward in group])
    index = numpy.array([n for n, group in enumerate(groups) for _ in group])
    found, _ = compute_grpo_outcome_advantage(rewards, torch.ones_like(rewards), index)
    return split(found[:, 0].tolist(), groups)


def slime_settings(group):
    return types.SimpleNamespace(
        advantage_estimator="grpo",
        rewards_normalization=True,
        grpo_std_normalization=True,
        n_samples_per_prompt=len(group),
        rollout_batch_size=1,
        reward_key=None,
    )


def slime_samples(group):
    return [
        types.SimpleNamespace(
            get_reward_value=lambda _, one=one: one, group_index=0, rollout_id=None, index=place
        )
        for place, one in enumerate(group)
    ]


def slime(groups):
    from slime.ray.rollout import RolloutManager

    found = []
    for group in groups:
        itself = types.SimpleNamespace(
            args=slime_settings(group), custom_reward_post_process_func=None
        )
        found.append(RolloutManager._post_process_rewards(itself, slime_samples(group))[1])
    return found


def miles(groups):
    from miles.ray.rollout.train_data_conversion import _post_process_rewards

    return [
        _post_process_rewards(
            slime_settings(group), slime_samples(group), custom_reward_post_process_func=None
        )[1]
        for group in groups
    ]


def trl(groups):
    """TRL's trainer, one step of a tiny model; groups that are not whole are filled up with None."""
    from datasets import Dataset
    from test_server_others import tiny
    from trl import GRPOConfig, GRPOTrainer

    whole = [[*group, *[None] * (SAMPLES - len(group))] for group in groups]
    model, tokenizer = tiny()
    with tempfile.TemporaryDirectory() as folder:
        made = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=lambda prompts, **_: [one for group in whole for one in group],
            train_dataset=Dataset.from_list([{"prompt": "a"} for _ in whole]),
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=len(whole) * SAMPLES,
                num_generations=SAMPLES,
                max_completion_length=1,
                max_steps=1,
                use_cpu=True,
                bf16=False,
                report_to=[],
                save_strategy="no",
            ),
        )
        made.train()
    found = split(list(made._logs["advantages"]), whole)
    return [values[: len(group)] for values, group in zip(found, groups, strict=True)]


def split(values, groups):
    rest = iter(values)
    return [[next(rest) for _ in group] for group in groups]


# (what is printed, clone, tag, function, how a lost deck is left out: not, by its loss, or by None in place of a number)
TRAINERS = [
    ("NeMo-RL v0.6.0", "RL", "v0.6.0", nemo_rl, "not"),
    ("NeMo-RL v0.7.0", "RL", "v0.7.0", nemo_rl, "not"),
    ("NeMo-RL head", "RL", "HEAD", nemo_rl, "loss"),
    ("slime head", "slime", "HEAD", slime, "loss"),
    ("miles head", "miles", "HEAD", miles, "loss"),
    ("verl head", "verl", "HEAD", verl, "not"),
    ("TRL, installed", None, None, trl, "none"),
]


def planted(share, seed=1):
    """Groups of rewards, of which a share is None."""
    draw = random.Random(f"{seed} {share}")
    groups = []
    for _ in range(GROUPS):
        middle = draw.uniform(0.2, 0.8)
        group = [min(1.0, max(0.0, draw.gauss(middle, 0.15))) for _ in range(SAMPLES)]
        groups.append([None if draw.random() < share else one for one in group])
    return groups


def given(groups, door):
    """The rewards that a trainer gets: of a lost deck 0, or by our doors the mean of the others."""
    everything = [one for group in groups for one in group if one is not None]
    found = []
    for group in groups:
        known = [one for one in group if one is not None] or everything
        lost = statistics.fmean(known) if door else 0.0
        found.append([lost if one is None else one for one in group])
    return found


def measured(advantages, groups, door, masks):
    """(a fault, others off, turned) of a trainer."""
    wanted = [[one for one in group if one is not None] for group in groups]
    right = iter(advantages([group for group in wanted if len(group) > 1]))
    made = advantages(groups if door and masks == "none" else given(groups, door))
    faults, off, size, turned, count = [], [], [], 0, 0
    for group, found in zip(groups, made, strict=True):
        known = [value for one, value in zip(group, found, strict=True) if one is not None]
        faults += [
            0.0 if masks == "loss" and door else abs(value)
            for one, value in zip(group, found, strict=True)
            if one is None
        ]
        truth = next(right) if len(known) > 1 else [0.0] * len(known)
        for value, wanted_value in zip(known, truth, strict=True):
            off.append(abs(value - wanted_value))
            size.append(abs(wanted_value))
            count += 1
            turned += value * wanted_value < 0
    unit = statistics.fmean(size) or 1.0
    return statistics.fmean(faults) / unit, statistics.fmean(off) / unit, turned / count


def one(name, clone, tag, advantages, masks, trainers):
    """The lines of a trainer."""
    if clone:
        home = source(trainers, clone, tag)
        sys.path.insert(0, str(home))
        sys.meta_path.insert(0, Absent(home))
    else:
        sys.path[:0] = [str(ROOT / "tests" / name) for name in ("rewards", "tools")]
        sys.path.insert(0, str(ROOT / "lib"))
    lines = []
    for share in SHARES:
        groups = planted(share)
        for door in (False, True):
            found = measured(advantages, groups, door, masks)
            said = "as our doors" if door else "as zeros"
            lines.append((name, f"{share:.0%}", said, *(f"{value:.2f}" for value in found)))
    return lines


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("trainers", type=Path, nargs="?", default=ROOT / "results/trainers")
    folder = options.parse_args().trainers
    folder.mkdir(parents=True, exist_ok=True)
    print("| trainer | lost | they come | a fault | others off | turned |")
    print("|---|---:|---|---:|---:|---:|")
    for name, clone, tag, advantages, masks in TRAINERS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            for line in pool.apply(one, (name, clone, tag, advantages, masks, folder)):
                print("| " + " | ".join(line) + " |", flush=True)


if __name__ == "__main__":
    main()
