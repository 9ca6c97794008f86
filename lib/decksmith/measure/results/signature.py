"""Who vouches for a file: detached signatures by SSH keys, made and checked by OpenSSH's ssh-keygen.

The signature of FILE is FILE.sig, in the format of OpenSSH's PROTOCOL.sshsig, for the namespace "decksmith". Whoever has a file,
its signature and the signer's public key can also check it by hand: ssh-keygen(1), -Y verify.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from decksmith.core import cli

NAMESPACE = "decksmith"
# Of ~/.ssh, as ssh looks for them.
DEFAULT = ("id_ed25519", "id_ecdsa", "id_ed25519_sk", "id_ecdsa_sk", "id_rsa")
_TYPE = re.compile(r"(ssh-|ecdsa-|sk-)\S+\s+[A-Za-z0-9+/]+=*")


def key(path: Path | None = None) -> Path:
    """The key to sign with: `path`, or the first of the usual ones in ~/.ssh. Raises cli.Missing, for ssh-keygen too."""
    if not shutil.which("ssh-keygen"):
        raise _missing()
    if path is not None:
        if not path.is_file():
            raise cli.Missing(f"{path}: there is no such key; ssh-keygen -t ed25519 makes one")
        return path
    folder = Path.home() / ".ssh"
    found = next((folder / name for name in DEFAULT if (folder / name).is_file()), None)
    if found is None:
        raise cli.Missing(
            f"no key to sign with: {folder} has none of {', '.join(DEFAULT)}; name one with --key, "
            "or make one: ssh-keygen -t ed25519"
        )
    return found


def sign(path: Path, secret: Path) -> Path:
    """Write and return `path`.sig, the signature of the file by the key `secret` (a public key where an agent has the
    secret part). ssh-keygen asks for a passphrase on the terminal. Raises cli.Missing for what is not there, cli.BadConfig
    for a key that cannot sign."""
    signature = path.with_name(f"{path.name}.sig")
    signature.unlink(missing_ok=True)  # ssh-keygen would ask whether it may
    done = _run("sign", "-q", "-f", secret, path, terminal=True)
    if done.returncode or not signature.is_file():
        raise cli.BadConfig(f"{secret} cannot sign: {_last(done)}")
    return signature


def signer(path: Path, trusted: Path) -> str:
    """Who signed a file, as `NAME (TYPE key SHA256:..)`. `trusted`: an allowed-signers file (ssh-keygen(1), ALLOWED SIGNERS)
    or one public key. Raises cli.BadData for a signature that is missing, wrong, or of a key that `trusted` does not have."""
    signature = path.with_name(f"{path.name}.sig")
    if not signature.is_file():
        raise cli.BadData(f"{path} is not signed: there is no {signature}")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as allowed:
        allowed.write(_allowed(trusted))
        allowed.flush()
        with open(path, "rb") as file:
            done = _run("check-novalidate", "-s", signature, stdin=file)
        made = re.search(r"with (\S+) key (SHA256:\S+)", done.stdout)
        if done.returncode or not made:
            raise cli.BadData(f"{signature} is no signature of {path}: {_last(done)}")
        whose = f"{made[1]} key {made[2]}"
        for name in _run(
            "find-principals", "-s", signature, "-f", allowed.name
        ).stdout.splitlines():
            with open(path, "rb") as file:
                known = ("-I", name, "-f", allowed.name)
                if not _run("verify", *known, "-s", signature, stdin=file).returncode:
                    return f"{name} ({whose})"
    raise cli.BadData(
        f"{path} is signed by an {whose}, which {trusted} does not have or does not allow"
    )


def _allowed(trusted: Path) -> str:
    """The text of an allowed-signers file; a public key becomes one, its comment the signer's name."""
    try:
        text = trusted.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", error)
        raise cli.Missing(
            f"{trusted}: {said}; it is to be an allowed-signers file or a public key"
        ) from None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines or any("PRIVATE KEY" in line for line in lines):
        raise cli.BadData(f"{trusted}: neither an allowed-signers file nor a public key")
    for at, line in enumerate(lines):
        if _TYPE.match(line):
            comment = "".join(line.split(None, 2)[2:])
            name = re.sub(r"[^A-Za-z0-9@._+-]+", "-", comment or trusted.stem).strip("-")
            lines[at] = f"{name or 'signer'} {line}"
    return "\n".join(lines) + "\n"


def _run(
    verb: str, *arguments: object, stdin: IO[bytes] | None = None, terminal: bool = False
) -> subprocess.CompletedProcess[str]:
    named = [] if verb == "find-principals" else ["-n", NAMESPACE]
    try:
        return subprocess.run(
            ["ssh-keygen", "-Y", verb, *named, *map(str, arguments)],
            stdin=stdin or (None if terminal else subprocess.DEVNULL),
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise _missing() from None


def _missing() -> cli.Missing:
    image = "DECKSMITH_IMAGE" in os.environ
    here = "in this image; IMAGES=off uses the machine's" if image else "here"
    return cli.Missing(f"ssh-keygen is not {here}; Debian has it in openssh-client")


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"ssh-keygen ended with status {done.returncode}"
