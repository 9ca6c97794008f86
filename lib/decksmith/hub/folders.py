"""What a folder holds, checked and made a parcel with its card."""

from pathlib import Path

from decksmith.core import cli, masking
from decksmith.hub import adapter, dataset, parcels
from decksmith.hub.parcels import FILES, NEEDED, Parcel

_BINARY = (".safetensors", ".gguf", ".png")


def parcel(folder: Path, kind: str, repo: str) -> Parcel:
    """Check the folder, write its card to FOLDER/card and return the Parcel.

    Raises cli.BadData naming the file and line of what must not be published, cli.Missing without huggingface_hub.
    """
    parcels.library()
    found = {name: folder / name for name in FILES[kind] if (folder / name).is_file()}
    if lacks := [name for name in NEEDED[kind] if name not in found]:
        is_adapter = kind == "dataset" and (folder / "adapter_config.json").exists()
        hint = " (for an adapter: --kind adapter)" if is_adapter else ""
        raise cli.BadData(f"{folder}: no {lacks[0]}{hint}")
    made = Parcel(kind, repo, found)
    describe = dataset.describe if kind == "dataset" else adapter.describe
    made.files |= describe(made, folder / "card")
    _check_secrets(made)
    return made


def _check_secrets(made: Parcel) -> None:
    """Refuse to publish the value of a key or token that this process was given; note a path of this machine."""
    secrets = {name: value.encode() for value, name in masking.known(masking.SHORTEST).items()}
    for name, path in made.files.items():
        if path.suffix in _BINARY:
            continue
        data = path.read_bytes()
        if found := next((key for key, value in secrets.items() if value in data), None):
            raise cli.BadData(
                f"{path}: holds the value of {found}; take it out before anything is published"
            )
        if str(cli.ROOT).encode() in data:
            made.notes.append(f"{name} names a path of this machine, {cli.ROOT}")
