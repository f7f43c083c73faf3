"""Ed25519 signatures (RFC 8032) in plain Python, for a few signatures per update.

It takes milliseconds, and its time depends on the numbers it handles: good for checking, which has no secrets, and for
signing on a machine that nobody measures.
"""

from __future__ import annotations

import hashlib

KEY_BYTES, SIGNATURE_BYTES = 32, 64
_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_1 = pow(2, (_P - 1) // 4, _P)
_BASE_Y = 4 * pow(5, -1, _P) % _P

_Point = tuple[int, int, int, int]
"""Extended coordinates X, Y, Z and T of a point of the curve: x = X/Z, y = Y/Z, xy = T/Z."""


def public_key(secret: bytes) -> bytes:
    """Return the public key of a secret key of 32 bytes."""
    scalar, _ = _expanded(secret)
    return _encoded(_multiplied(scalar, _base()))


def sign(secret: bytes, message: bytes) -> bytes:
    """Sign a message.

    Args:
        secret: secret key, 32 bytes.
        message: content to sign.

    Returns:
        The signature, 64 bytes.
    """
    scalar, prefix = _expanded(secret)
    nonce = _hashed(prefix, message)
    point = _encoded(_multiplied(nonce, _base()))
    challenge = _hashed(point, public_key(secret), message)
    return point + ((nonce + challenge * scalar) % _ORDER).to_bytes(32, "little")


def is_signed(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature is the message's, made with the secret of a public key.

    Args:
        public: public key, 32 bytes.
        message: content that was signed.
        signature: signature, 64 bytes.
    """
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    key, point = _decoded(public), _decoded(signature[:32])
    factor = int.from_bytes(signature[32:], "little")
    if key is None or point is None or factor >= _ORDER:
        return False
    challenge = _hashed(signature[:32], public, message)
    left, right = _multiplied(factor, _base()), _added(point, _multiplied(challenge, key))
    return _is_same(left, right)


def _expanded(secret: bytes) -> tuple[int, bytes]:
    """Return the scalar of a secret key and the prefix of its nonces."""
    if len(secret) != KEY_BYTES:
        raise ValueError(f"a secret key has {KEY_BYTES} bytes, this one {len(secret)}")
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    return scalar, digest[32:]


def _hashed(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % _ORDER


def _added(a: _Point, b: _Point) -> _Point:
    minus, plus = (a[1] - a[0]) * (b[1] - b[0]) % _P, (a[1] + a[0]) * (b[1] + b[0]) % _P
    cross, both = 2 * a[3] * b[3] * _D % _P, 2 * a[2] * b[2] % _P
    e, f, g, h = plus - minus, both - cross, both + cross, plus + minus
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiplied(factor: int, point: _Point) -> _Point:
    total = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            total = _added(total, point)
        point = _added(point, point)
        factor >>= 1
    return total


def _is_same(a: _Point, b: _Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % _P == 0 and (a[1] * b[2] - b[1] * a[2]) % _P == 0


def _base() -> _Point:
    x = _x_of(_BASE_Y, 0)
    assert x is not None
    return x, _BASE_Y, 1, x * _BASE_Y % _P


def _x_of(y: int, sign_bit: int) -> int | None:
    """Return the x coordinate for a y coordinate and the lowest bit of x; None: no point of the curve has them."""
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_1 % _P
    if (x * x - square) % _P or (x == 0 and sign_bit):
        return None
    return x if x & 1 == sign_bit else _P - x


def _encoded(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decoded(content: bytes) -> _Point | None:
    number = int.from_bytes(content, "little")
    sign_bit, y = number >> 255, number & ((1 << 255) - 1)
    x = _x_of(y, sign_bit) if y < _P else None
    return None if x is None else (x, y, 1, x * y % _P)
