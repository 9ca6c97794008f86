"""An adapter's folder, and what of it decides how it is served."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from decksmith.core import cli
from decksmith.hub import weights


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in a PEFT folder. `sha256` is of config and weights; `gguf` the embedded
    engine's form of it, or None."""

    path: Path
    rank: int
    base: str | None
    sha256: str
    gguf: Path | None

    @classmethod
    def load(cls, path: Path) -> "Adapter":
        """Of a checkpoint's policy/weights/model, or of what model-export made. Raises
        cli.Missing, cli.BadData."""
        path = Path(path)
        config, weights = path / "adapter_config.json", path / "adapter_model.safetensors"
        gguf = path / "adapter.gguf"
        for needed in (config, weights):
            if not needed.is_file():
                why = f"{needed.name} is not there; model-export writes it"
                raise cli.Missing(f"{path} is no adapter: {why}")
        try:
            said = json.loads(config.read_text())
            # The largest of its modules' ranks.
            rank = max(map(int, [said["r"], *(said.get("rank_pattern") or {}).values()]))
            base = said.get("base_model_name_or_path")
        except (ValueError, KeyError, TypeError) as error:
            raise cli.BadData(f"{config}: not the config of a LoRA adapter ({error!r})") from None
        return cls(
            path=path.resolve(),
            rank=rank,
            base=base,
            sha256=sha256(config, weights),
            gguf=gguf.resolve() if gguf.is_file() else None,
        )

    def check_base(self, base: str | Path) -> None:
        """Hold the adapter's matrices to those of a base whose folder is here; vLLM would end
        with a traceback. Raises cli.BadData for an adapter of another base."""
        sizes = {
            name.removesuffix(".weight"): tensor.shape
            for file in sorted(Path(base).glob("*.safetensors"))
            for name, tensor in weights.tensors(file).items()
        }
        if not sizes:
            return
        file = self.path / "adapter_model.safetensors"
        for name, tensor in weights.tensors(file).items():
            module, _, half = name.removeprefix("base_model.model.").partition(".lora_")
            axis = {"A.weight": 1, "B.weight": 0}.get(half)
            if axis is None or module not in sizes or len(tensor.shape) != 2:
                continue
            has, wants = sizes[module][axis], tensor.shape[axis]
            if has != wants:
                raise cli.BadData(
                    f"{file}: {module} was trained for a matrix of {wants}, that of {base} has "
                    f"{has}: the adapter belongs to another base ({self.base}); name that with --base"
                )


def sha256(*paths: Path) -> str:
    """One digest (hex) of some files."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
