"""Chat templates that try to use up the machine, each with the limits that may end it.

Some are ended by whichever limit comes first, which depends on the processor: their limits are joined by a bar.
"""

from __future__ import annotations

from typing import NamedTuple

GROW = "{% set ns = namespace(s='x' * 1000, l=[0] * 1000, d={}, n=3) %}"


class Hostile(NamedTuple):
    """A template and the name of the limit that ends it."""

    source: str
    limit: str


def _loop(body: str, times: int = 99_000) -> str:
    return GROW + "{% for i in range(" + str(times) + ") %}" + body + "{% endfor %}"


DEEP = (
    "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(40) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
)
LINES = "{% set lines = ('x\\n' * 400000) %}"
WORDS = "{% set words = ('ab ' * 300000) %}"
LONG = "{% set long = ('a' * 900000) %}"

MEMORY = {
    "indent": LINES + "{{ lines | indent(900000) }}",
    "indent_first": LINES + "{{ lines | indent(900000, true, true) }}",
    "tojson_indent": "{{ range(90000) | list | tojson(indent=900000) }}",
    "tojson_indent_nested": "{{ [[[[range(9000) | list]]]] | tojson(indent=900000) }}",
    "tojson_separators": "{{ range(90000) | list | tojson(separators=('x' * 100000, ':')) }}",
    "join": "{{ range(90000) | list | join('x' * 100000) }}",
    "join_method": "{{ ('x' * 100000).join(['a'] * 90000) }}",
    "replace": "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "replace_method": "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "replace_empty": "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "wordwrap": WORDS + "{{ words | wordwrap(2, true, 'x' * 100000) }}",
    "expandtabs": "{{ ('\\t' * 100000).expandtabs(100000) }}",
    "batch_fill": "{{ range(2) | batch(1000000, 'x') | list | length }}"
    + _loop("{% set ns.d = (ns.d, range(90000) | batch(1000000, i) | list) %}"),
    "translate": "{{ ('a' * 100000).translate({97: 'b' * 100000}) }}",
    "kept_texts": _loop("{% set ns.l = (ns.l, 'x' * 900000 ~ i) %}"),
    "kept_lists": _loop("{% set ns.l = (ns.l, [i] * 900000) %}"),
    "kept_ranges": _loop("{% set ns.l = (ns.l, range(99000) | list) %}"),
    "kept_upper": LONG + _loop("{% set ns.l = (ns.l, long.upper() ~ i) %}"),
    "kept_encoded": LONG + _loop("{% set ns.l = (ns.l, long.encode('utf-32')) %}"),
    "kept_sets": _loop("{% set ns.l = (ns.l, dict.fromkeys(range(90000) | list)) %}"),
    "kept_chars": _loop("{% set ns.l = (ns.l, ('x' * 900000 ~ i) | list) %}"),
    "kept_splits": WORDS + _loop("{% set ns.l = (ns.l, words.split()) %}"),
    "format_values": "{{ ('%s' * 90000) % (('x' * 100000,) * 90000) }}",
    "format_width": "{{ '{:>1000000000000}'.format(1) }}",
    "format_method": "{{ ('{0}' * 90000).format('x' * 100000) }}",
}
"""Ended by the memory limit, or by the text limit where the machine has that much to give."""

TIME = {
    "striptags": _loop("{% set x = ('<' * 900000) | striptags %}"),
    "striptags_comments": _loop("{% set x = ('<!--' * 200000) | striptags %}"),
    "urlize": _loop("{% set x = ('http://' * 90000) | urlize %}"),
    "urlize_at": _loop("{% set x = ('a@' * 90000) | urlize %}"),
    "search": _loop("{% set x = ('a' * 9000 ~ 'b') in ('a' * 900000) %}"),
    "tojson_deep": DEEP + "{{ ns.a | tojson }}",
    "string_deep": DEEP + "{{ ns.a | string }}",
    "equal_deep": DEEP + "{{ ns.a == ns.b }}",
    "count": _loop("{% set x = ('a' * 900000).count('aab') %}"),
    "find": LONG + _loop("{% set x = long.find('ab') %}"),
    "rfind": LONG + _loop("{% set x = long.rfind('ba') %}"),
    "sort": "{% set l = range(99000) | list %}" + _loop("{% set x = l | sort(reverse=true) | first %}"),
    "sort_texts": WORDS + "{% set l = words.split() %}" + _loop("{% set x = l | sort | first %}"),
    "unique": "{% set l = range(99000) | list %}" + _loop("{% set x = l | unique | list %}"),
    "groupby": "{% set l = range(9000) | list %}" + _loop("{% set x = l | map('string') | groupby(0) %}"),
    "reverse": LONG + _loop("{% set x = long | reverse %}"),
    "slices": LONG + _loop("{% set x = long[::-1] %}"),
    "upper": LONG + _loop("{% set x = long.upper() %}"),
    "title": LONG + _loop("{% set x = long | title %}"),
    "split": WORDS + _loop("{% set x = words.split() %}"),
    "wordcount": WORDS + _loop("{% set x = words | wordcount %}"),
    "sum": "{% set l = range(99000) | list %}" + _loop("{% set x = l | sum %}"),
    "max": "{% set l = range(99000) | list %}" + _loop("{% set x = l | max %}"),
    "select": "{% set l = range(99000) | list %}" + _loop("{% set x = l | select('even') | list %}"),
    "map": "{% set l = range(99000) | list %}" + _loop("{% set x = l | map('string') | join %}"),
    "list": _loop("{% set x = range(99000) | list %}"),
    "tojson": "{% set l = range(99000) | list %}" + _loop("{% set x = l | tojson %}"),
    "pprint": "{% set l = range(99000) | list %}" + _loop("{% set x = l | pprint %}"),
    "urlencode": LONG + _loop("{% set x = long | urlencode %}"),
    "escape": LONG + _loop("{% set x = long | escape %}"),
    "xmlattr": _loop("{% set x = {'a': 'x' * 900000} | xmlattr %}"),
    "equal_lists": "{% set a = [1] * 900000 %}{% set b = [1] * 900000 %}" + _loop("{% set x = a == b %}"),
    "in_list": "{% set a = [1] * 900000 %}" + _loop("{% set x = 2 in a %}"),
    "hash": _loop("{% set x = {'a' * 900000 ~ i: 1} %}"),
    "strip": "{% set s = ' ' * 900000 %}" + _loop("{% set x = s | trim %}"),
    "splitlines": LINES + _loop("{% set x = lines.splitlines() %}"),
    "wordwrap": LONG + _loop("{% set x = long | wordwrap(1) %}", 200),
    "encode": LONG + _loop("{% set x = long.encode('utf-16') %}"),
    "casefold": LONG + _loop("{% set x = long.casefold() %}"),
    "macro_call": LONG + "{% macro m(s) %}{{ s.upper().lower() | length }}{% endmacro %}" + _loop("{{ m(long) }}"),
}
"""Ended by the time limit: each step is allowed, and takes a millisecond or a minute."""

TEXT = {
    "output": "{% for i in range(90000) %}{{ 'x' * 90000 }}{% endfor %}",
    "repeat": "{{ 'x' * 10 ** 12 }}",
    "repeat_list": "{{ [0] * 1000000000000 }}",
    "repeat_tuple": "{{ (1, 2) * 1000000000000 }}",
    "repeat_left": "{{ 1000000000000 * 'x' }}",
    "double": _loop("{% set ns.s = ns.s + ns.s %}"),
    "double_tilde": _loop("{% set ns.s = ns.s ~ ns.s %}"),
    "double_list": _loop("{% set ns.l = ns.l + ns.l %}"),
    "double_format": _loop("{% set ns.s = '%s%s' % (ns.s, ns.s) %}"),
    "double_method": _loop("{% set ns.s = '{0}{0}'.format(ns.s) %}"),
    "double_join": _loop("{% set ns.s = [ns.s, ns.s] | join %}"),
    "double_replace": _loop("{% set ns.s = ns.s | replace('x', 'xx') %}"),
    "indent_some": "{{ ('x\\n' * 20) | indent(900000) }}",
}
STEP = {
    "loops": "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive_loop": "{% for i in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}",
    "caller": "{% macro f(n) %}{{ caller(n) }}{% endmacro %}"
    "{% for i in range(400) %}{% for j in range(400) %}{% call(x) f(i) %}{{ x }}{% endcall %}{% endfor %}{% endfor %}",
    "text_loop": "{% for a in 'x' * 900000 %}{% endfor %}",
}
NUMBER = {
    "power": "{{ 10 ** 1000000000 }}",
    "power_tower": "{% set ns = namespace(n=9) %}{% for i in range(60) %}{% set ns.n = ns.n ** 60 %}{% endfor %}",
    "squares": "{% set ns = namespace(n=9) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "doubles": _loop("{% set ns.n = ns.n + ns.n %}"),
    "sums": _loop("{% set ns.n = [ns.n, ns.n] | sum %}"),
    "ljust": "{{ 'x'.ljust(1000000000000) }}",
    "center": "{{ 'x' | center(1000000000000) }}",
    "percent_width": "{{ '%1000000000000d' % 1 }}",
    "star_width": "{{ '%*d' % (1000000000000, 1) }}",
    "tojson_indent": "{{ [1] | tojson(indent=1000000000) }}",
    "indent": "{{ 'x\\nx' | indent(1000000000) }}",
    "slice": "{{ [1] | slice(1000000000) | list }}",
    "batch": "{{ [1] | batch(1000000000, 0) | list }}",
}

DEPTH = {
    "macro": "{% macro m(n) %}{% set t = 'x' * 900000 ~ n %}{{ m(n + 1) }}{{ t }}{% endmacro %}{{ m(0) }}",
    "parentheses": "{{ " + "(" * 60 + "1" + ")" * 60 + " }}{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "negations": "{{ " + "not " * 50_000 + "1 }}",
}
NUMBER["range"] = "{% for i in range(1000000) %}{% endfor %}"

HOSTILE = {
    **{f"memory-{name}": Hostile(source, "memory|text") for name, source in MEMORY.items()},
    **{f"time-{name}": Hostile(source, "time") for name, source in TIME.items()},
    **{f"text-{name}": Hostile(source, "text") for name, source in TEXT.items()},
    **{f"step-{name}": Hostile(source, "step") for name, source in STEP.items()},
    **{f"depth-{name}": Hostile(source, "depth") for name, source in DEPTH.items()},
    **{f"number-{name}": Hostile(source, "number") for name, source in NUMBER.items()},
}
"""Name to template."""

EACH_ROW = {
    "sort": "{{ range(99000) | list | sort(reverse=true) | first }}{{ messages[0].content }}",
    "striptags": "{% for i in range(30) %}{% set x = ('<' * 900000) | striptags %}{% endfor %}"
    "{{ messages[0].content }}",
    "urlize": "{% set x = ('http://a.b ' * 20000) | urlize %}{{ messages[0].content }}",
    "search": "{% for i in range(30) %}{% set x = ('a' * 9000 ~ 'b') in ('a' * 900000) %}{% endfor %}"
    "{{ messages[0].content }}",
}
"""Templates that take a fraction of a second, for every row."""

ONE_OF_EACH = ["memory-indent", "memory-kept_lists", "time-equal_deep", "text-double", "step-loops", "depth-macro",
    "number-power_tower"]  # fmt: skip
"""One for each mechanism."""
