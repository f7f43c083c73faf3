import pytest

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.release import ed25519, minisign

from support.engine_mirror import KEY, NUMBER, SECRET

# RFC 8032, section 7.1, tests 1 to 3: secret key, public key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032)
def test_signatures_are_those_of_the_standard(secret, public, message, signature):
    secret, public, message, signature = map(bytes.fromhex, (secret, public, message, signature))
    assert ed25519.public_key(secret) == public
    assert ed25519.sign(secret, message) == signature
    assert ed25519.is_signed(public, message, signature)


def changed(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("at", [0, 31, 32, 63])
def test_no_changed_signature_passes(at):
    message = b"a release"
    signature = ed25519.sign(SECRET, message)
    assert ed25519.is_signed(KEY.key, message, signature)
    assert not ed25519.is_signed(KEY.key, message, changed(signature, at))
    assert not ed25519.is_signed(KEY.key, message + b"!", signature)
    assert not ed25519.is_signed(changed(KEY.key, at % 32), message, signature)


def test_a_signed_file_passes_and_tells_its_comment():
    key = minisign.read_key(KEY.text())
    assert key == KEY
    text = minisign.sign(SECRET, NUMBER, b"test", "timestamp:1")
    assert minisign.check(key, b"test", text, name="test") == "timestamp:1"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("timestamp:1", "timestamp:2"),
        lambda text: text.replace("trusted comment: t", "comment: t"),
        lambda text: "",
        lambda text: minisign.sign(bytes(32), NUMBER, b"test", "timestamp:1"),
        lambda text: minisign.sign(SECRET, b"another!", b"test", "timestamp:1"),
        lambda text: minisign.sign(SECRET, NUMBER, b"other", "timestamp:1"),
    ],
    ids=["comment", "form", "empty", "other secret", "other key", "other file"],
)
def test_what_was_changed_is_refused(spoil):
    text = minisign.sign(SECRET, NUMBER, b"test", "timestamp:1")
    with pytest.raises(SetupError):
        minisign.check(KEY, b"test", spoil(text), name="test")


@pytest.mark.parametrize("text", ["", "nonsense", "untrusted comment: x\nAAAA"])
def test_what_is_no_key_is_refused(text):
    with pytest.raises(SetupError):
        minisign.read_key(text)
