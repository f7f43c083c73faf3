"""Signatures in minisign's form: Ed25519 over the BLAKE2b hash of a file, with a comment that is signed as well.

Source: minisign's manual, "Signature format" and "Public key format". The program itself checks what is signed here,
and what it signed is checked here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.release import ed25519

_KEY_KIND, _SIGNATURE_KIND = b"Ed", b"ED"  # ED: the signature is of the file's BLAKE2b hash, not of the file
_ID_BYTES = 8
_UNTRUSTED, _TRUSTED = "untrusted comment: ", "trusted comment: "


@dataclass(frozen=True)
class PublicKey:
    """A public key with the number by which a signature names it."""

    number: bytes
    key: bytes

    def text(self) -> str:
        """Return the key as the text of a file."""
        return f"{_UNTRUSTED}minisign public key {_shown(self.number)}\n{_packed(_KEY_KIND, self.number, self.key)}\n"


def read_key(text: str) -> PublicKey:
    """Read the text of a file with a public key, or its last line alone.

    Raises:
        SetupError: The text is no public key.
    """
    lines = text.strip().splitlines()
    content = _unpacked(lines[-1]) if lines else b""
    if len(content) != 2 + _ID_BYTES + ed25519.KEY_BYTES or content[:2] != _KEY_KIND:
        raise SetupError("The release's public key cannot be read: it is no key of minisign.", "Correct it.")
    return PublicKey(content[2 : 2 + _ID_BYTES], content[2 + _ID_BYTES :])


def sign(secret: bytes, number: bytes, content: bytes, comment: str) -> str:
    """Sign the content of a file.

    Args:
        secret: secret key, 32 bytes.
        number: number of the key, 8 bytes.
        content: content of the file.
        comment: comment, which is signed too.

    Returns:
        The text of the signature file.
    """
    signature = ed25519.sign(secret, _digest(content))
    both = base64.b64encode(ed25519.sign(secret, signature + comment.encode())).decode()
    packed = _packed(_SIGNATURE_KIND, number, signature)
    return f"{_UNTRUSTED}signature with key {_shown(number)}\n{packed}\n{_TRUSTED}{comment}\n{both}\n"


def check(key: PublicKey, content: bytes, signature: str, *, name: str) -> str:
    """Check the signature of a file; returns its comment, which is signed too.

    Args:
        key: public key that has to have signed it.
        content: content of the file.
        signature: text of the signature file.
        name: name of the file, for messages.

    Raises:
        SetupError: The file is not signed with that key, or was changed since.
    """
    lines = signature.splitlines()
    if len(lines) < 4 or not lines[2].startswith(_TRUSTED):
        raise SetupError(f"The signature of {name} cannot be read.", _DO)
    packed, comment, both = _unpacked(lines[1]), lines[2].removeprefix(_TRUSTED), _unpacked(lines[3])
    kind, number, own = packed[:2], packed[2 : 2 + _ID_BYTES], packed[2 + _ID_BYTES :]
    if kind != _SIGNATURE_KIND or number != key.number:
        raise SetupError(f"{name} is signed with another key ({_shown(number)}, not {_shown(key.number)}).", _DO)
    signed = ed25519.is_signed(key.key, _digest(content), own)
    if not signed or not ed25519.is_signed(key.key, own + comment.encode(), both):
        raise SetupError(f"{name} is not what was signed: somebody or something changed it.", _DO)
    return comment


_DO = "Nothing was installed. Take the release from the address that its makers publish."


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content).digest()


def _packed(kind: bytes, number: bytes, content: bytes) -> str:
    return base64.b64encode(kind + number + content).decode()


def _unpacked(line: str) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _shown(number: bytes) -> str:
    return f"{int.from_bytes(number, 'little'):016X}"
