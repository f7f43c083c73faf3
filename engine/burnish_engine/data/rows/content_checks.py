"""Checks rows for secrets, e-mail addresses, decoding damage, degenerate replies and placeholders."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from burnish_engine.data.rows.conversation import Conversation

SECRETS = {
    "an AWS access key": (("AKIA", "ASIA"), re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    "a GitHub token": (("ghp_", "gho_", "ghs_", "ghu_", "github_pat_"), re.compile(
        r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})")),
    "a Hugging Face token": (("hf_",), re.compile(r"\bhf_[A-Za-z0-9]{30,}\b")),
    "an API key (sk-...)": (("sk-", "sk_live_", "rk_live_"), re.compile(
        r"\b(?:sk-(?:proj-|ant-[a-z0-9]+-)?[A-Za-z0-9_-]{20,}|[sr]k_live_[A-Za-z0-9]{20,})")),
    "a Slack token": (("xox",), re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}")),
    "a Google API key": (("AIza",), re.compile(r"\bAIza[A-Za-z0-9_-]{35}")),
    "a private key": (("PRIVATE KEY-----",), re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    "a JSON web token": (("eyJ",), re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}")),
    "a password in a URL": (("://",), re.compile(r"://[^\s/:@]{1,64}:[^\s/:@]{3,64}@[\w.-]+")),
}  # fmt: skip
"""Patterns of secrets: name to (literals of which each match contains one, pattern), as the issuers document them."""
EMAIL = "an e-mail address"
_EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,4}\.[A-Za-z]{2,24}\b")
_EXAMPLE_HOSTS = ("@example.", "@test.", "@localhost")

# UTF-8 read as Latin-1 or Windows-1252: a letter of C2..C3 or E2 80, then what a continuation byte looks like there.
_MOJIBAKE = re.compile(r"Ã[\u0080-\u00bf\u20ac\u2018-\u2122]|â€[\u0080-\u00bf\u2018-\u2122œž¦“”]|Â[\u00a0-\u00bf]")
GARBLED = "garbled letters (text decoded twice, such as \u00c3\u00a9 for \u00e9)"
REPLACED = "characters lost in decoding (\ufffd)"

CONTROL = "a control token spelled out in the text"
STRAY_RESULT = "a tool's result that answers no call before it"
TOOLS_NOT_WRITTEN = "tools that the chat template does not write"
LITERAL = "a number, true or false for a reply, which is taken as its JSON text"
NO_TURN_END = "no end-of-turn token after the last reply"
NO_SYSTEM = "no system message"
PROMPT_DIFFERS = "a last reply that begins otherwise than the generation prompt says"

MEDIA_TAG = "a place for an image, audio or video, which is learned as letters"
PLACEHOLDER = "a placeholder that is learned as it stands"
_BLANKS = "NAME|COMPANY|DATE|ADDRESS|EMAIL|PHONE|CITY|TOPIC|PRODUCT|LOCATION"
_PLACEHOLDERS = re.compile(
    r"""(?<!\$)\{\{\s*[A-Za-z_][\w .-]{0,40}\}\}                      # {{name}}, {{ user.name }}
    | (?<![\w\\$^_{}\[("'/])\{[a-z][a-z_]{1,30}\}(?![\w{}\])"'])     # {name} among words
    | (?<!\w)\[(?:INSERT|Insert|insert|YOUR|Your|your)\b[^\]\n]{0,60}\](?!\()
    | (?<!\w)\[(?:[A-Z]+[ _])*(?:BLANKS)(?:[ _][A-Z]+)*\](?!\()       # [COMPANY NAME], and no link
    | <(?:INSERT|insert|YOUR|your)[ _-][^<>\n]{1,40}>                  # <YOUR_API_KEY>
    """.replace("BLANKS", _BLANKS),
    re.VERBOSE,
)
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_CODE_SIGNS = ("{%", 'f"', "f'", ".format(", "def ", "import ", "function ", "=>", "</", "\\begin", "#include")
"""Signs that a text may be code, where single braces are no placeholders."""

REPEATED = "a reply that repeats one phrase"
ECHO = "a reply that equals its question"
SHORTEST = "a reply of one character"
_LONG = 200  # characters; shorter replies are not checked for repetition
_CHECKED_CHARS = 20_000  # characters
_PHRASE = re.compile(r"(.{1,60}?)\1{9,}", re.DOTALL)


def secrets_in(text: str) -> Iterator[str]:
    """Yield the kinds of secrets that a text seems to hold."""
    for name, (hints, pattern) in SECRETS.items():
        if any(map(text.__contains__, hints)) and pattern.search(text):
            yield name


def addresses_in(text: str) -> bool:
    """Whether a text holds an e-mail address other than those of documentation, such as a@example.com."""
    if "@" not in text:
        return False
    return any(not any(host in found[0].lower() for host in _EXAMPLE_HOSTS) for found in _EMAIL.finditer(text))


def has_stray_result(conversation: Conversation) -> bool:
    """Whether a tool's result follows no reply, or names a call that no turn before it makes.

    Replies may spell their calls out in the text. So a row without ids of calls is judged by its order alone.
    """
    made, before = set[str](), ""
    for message in conversation.messages:
        made.update(call["id"] for call in message.extras.get("tool_calls", ()) if "id" in call)
        answered = message.extras.get("tool_call_id")
        misplaced = before not in ("assistant", "tool") or (answered and _makes_calls(conversation))
        if message.role == "tool" and answered not in made and misplaced:
            return True
        before = message.role
    return False


def _makes_calls(conversation: Conversation) -> bool:
    """Whether the row has calls, and all have ids."""
    calls = [call for message in conversation.messages for call in message.extras.get("tool_calls", ())]
    return bool(calls) and all("id" in call for call in calls)


def damage_in(text: str) -> Iterator[str]:
    """Yield the traces of wrong decoding in a text."""
    if "\ufffd" in text:
        yield REPLACED
    if ("Ã" in text or "â€" in text or "Â" in text) and _MOJIBAKE.search(text):
        yield GARBLED


def placeholder_in(conversation: Conversation) -> str:
    """Return the first placeholder in a row's supervised replies, or in its text; empty where there is none.

    Code is skipped, since its braces are no placeholders.

    Args:
        conversation: row to check.
    """
    supervised = [
        message.content for message in conversation.messages if message.role == "assistant" and message.supervised
    ]
    for text in supervised if conversation.text is None else [conversation.text]:
        if "{" not in text and "[" not in text and "<" not in text:
            continue
        words = _CODE.sub(" ", text) if "`" in text else text
        is_code = any(sign in words for sign in _CODE_SIGNS)
        for found in _PLACEHOLDERS.finditer(words):
            if not (is_code and found[0].startswith("{")):
                return found[0]
    return ""


def degenerate_in(conversation: Conversation) -> str:
    """Name the fault of a row's replies (or its text) that are not empty but useless; empty where they are fine."""
    if conversation.text is not None:
        return REPEATED if _repeats(conversation.text) else ""
    before = ""
    for message in conversation.messages:
        said = message.content.strip()
        if message.role == "assistant" and not message.extras.get("tool_calls"):
            if len(said) == 1 and not said.isalnum():
                return SHORTEST
            if len(said) > 20 and said == before:
                return ECHO
            if _repeats(said):
                return REPEATED
        before = said
    return ""


def _repeats(text: str) -> bool:
    """Whether more than half of a text is one phrase again and again."""
    if len(text) < _LONG:
        return False
    begin = text[:_CHECKED_CHARS]
    # The cheap tests first: a stretch longer than half of the text continues at one of these places as before, and
    # repetitive text compresses well, prose only by two to three.
    if not any(begin.find(begin[at : at + 8], at + 1, at + 68) > 0 for at in range(0, len(begin), len(begin) // 16)):
        return False
    packed = len(zlib.compress(begin.encode("utf-8", "surrogatepass"), 1))
    if packed * 6 > len(begin):
        return False
    longest = max((len(found[0]) for found in _PHRASE.finditer(begin)), default=0)
    return longest * 2 > len(begin)
