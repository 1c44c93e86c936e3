"""Renders small templates with Python's Jinja, set up as Hugging Face transformers sets it up for chat templates, and
writes what came out to tests/golden/text/jinja.json. Each template shows one trait in which an engine could differ.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install jinja2==3.1.6
    /tmp/venv/bin/python scripts/golden/chat_templates.py
"""

import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

# 2025-07-03 04:05:06
NOW = 1751515506

CONTEXT = {
    "messages": [
        {"role": "system", "content": "  You are Rill.\n"},
        {"role": "user", "content": "Hello <b>\"you\"</b> & 'me' é 😀"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 3, "exact": True}}}
            ],
        },
        {"role": "tool", "content": "{\"t\": 21.5}", "name": "get_weather"},
        {"role": "user", "content": [{"type": "text", "text": "What is in it?"}, {"type": "image"}]},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "The weather <now> & then",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2, 3]}},
                    "required": ["city"],
                },
            },
        }
    ],
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "name": "it's a bill-of-lading o'neil",
    "text": "  one two\tthree  two \n",
    "think": "<think>\nabc\n</think>\n\nanswer</think>x",
    "empty": "",
    "none": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "seven": 7,
    "minus": -7,
    "half": 0.5,
    "whole": 2.0,
    "large": 1e16,
    "larger": 1.5e300,
    "small": 1e-5,
    "third": 0.1,
    "big": 12345678901234567890,
    "numbers": [3, 1, 2],
    "mixed": [1, "a", None, True, 1.5, ["x"], {"k": "v's"}],
    "words": ["pear", "Apple", "fig"],
    "map": {"b": 2, "a": 1, "C": {"d": [1, "two"]}},
    "nothing": [],
    "empty_map": {},
    "unicode": "Ünïcödé ẞ ǆ",
    "lines": "a\nb\r\nc\n\nd",
    "people": [{"name": "Ann", "age": 30, "city": "X"}, {"name": "Bob", "age": 25, "city": "Y"}, {"name": "Cid", "age": 30, "city": "X"}],
    "control": "tab\t nul\u0000 esc\u001b del\u007f back\\slash line\u2028 é",
}

EXPRESSIONS = """
none
yes
no
half
whole
large
larger
small
third
big
minus
mixed
map
numbers
nothing
empty_map
name
undefined_thing
[1, 'it\\'s', "two\\n", none, true, 1.0]
{'a': [1, {'b': none}]}
(1, 2)
[(1, 2)]
("a",)
()
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1]
'a' ~ undefined_thing ~ 'b'
'a' + 'b' * 3
[1] + [2, 3]
[1] * 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 / 2
6 / 2
2 ** 10
2 ** -1
1 + 1.0
1 + true
0.1 + 0.2
1e3
1_000
10 / 4 * 2
not none
not empty
none or 'default'
empty or nothing or 'x'
yes and 'then'
no and 'then'
1 if yes
1 if no
1 if no else 2
'a' if empty else 'b' if zero else 'c'
1 < 2 < 3
1 == 1.0
'a' < 'b'
none == none
none is none
undefined_thing == none
undefined_thing is defined
undefined_thing is undefined
undefined_thing is none
messages[0].nope is defined
messages[0]['role'] is defined
messages[0].tool_calls is not defined
messages[2].content is none
'x' in 'axb'
'x' not in 'axb'
'role' in messages[0]
'nope' not in messages[0]
3 in numbers
none in mixed
'a' in map
'a' in map.keys()
1 in map.values()
messages is iterable
messages is mapping
messages is sequence
messages is string
map is iterable
map is mapping
map is sequence
map is string
name is iterable
name is sequence
name is string
name is mapping
seven is iterable
seven is number
yes is number
yes is integer
yes is boolean
seven is boolean
seven is integer
half is integer
half is float
seven is float
none is iterable
none is sequence
none is mapping
none is string
none is number
undefined_thing is iterable
undefined_thing is string
undefined_thing is mapping
yes is true
yes is false
no is false
seven is odd
seven is even
seven is divisibleby 7
seven is divisibleby(3)
seven is eq 7
seven is equalto 7
seven is ne(7)
seven is gt 3
seven is lt 3
seven is in [7]
'a' is in 'abc'
name is lower
'ABC' is upper
messages[0] is sameas messages[0]
range is callable
raise_exception is callable
name is callable
range(3) is iterable
range(3) is sequence
range(3) is string
messages[0]
messages[-1].role
messages[-1]['content'][0].text
messages[1:]|length
messages[:-1]|length
messages[::-1][0].role
messages[1:3]|map(attribute='role')|list
numbers[::2]
numbers[-2:]
numbers[5:]
nothing[::-1]
empty[::-1]
nothing[::2]
[0, 1, 2, 3, 4, 5][4:1:-1]
[0, 1, 2, 3, 4, 5][:0:-1]
[0, 1, 2, 3, 4, 5][1:4:-1]
[0, 1, 2, 3, 4, 5][-2::-2]
[0, 1, 2, 3, 4, 5][::-7]
[0, 1, 2, 3, 4, 5][-9:9:3]
[0, 1, 2, 3, 4, 5][9:-9:-2]
'abcdef'[5:2:-1]
'aé😀'[::-1]
(1, 2, 3)[::-1]
range(4)[::-1]|list
[[1, 2], [3]][::-1][0][::-1]
{'a': numbers[::-1]}['a'][0]
messages[::-1]|map(attribute='role')|list
messages[:0][::-1]
numbers[:100]
name[0]
name[-1]
name[2:6]
name[::-1]
name[:-3]
unicode[1:4]
unicode[-1]
messages[99] is defined
messages[99]
map['a']
map.a
map['nope']
map.get('a')
map.get('nope')
map.get('nope', 'd')
map.get('nope') is none
map.C.d[1]
map.items()
map.items()|list
map.keys()|list
map.values()|list
map.keys()|length
map.items()|length
map|items|list
map|dictsort
map|dictsort(true)
map|dictsort(false, 'value') if false else 1
map|dictsort(reverse=true)
{'b': 2, 'a': 1}|dictsort(by='value')
map|length
map|list
map|first
map|last
map|count
map|tojson
map|tojson(indent=2)
map|tojson(indent=4)
map|tojson(indent=0)
map|tojson(sort_keys=true)
map|tojson(separators=(',', ':'))
map|tojson(separators=(',', ': '), indent=2)
tools|tojson
tools|tojson(indent=4)
tools|tojson(ensure_ascii=False)
tools[0].function|tojson(indent=2, sort_keys=True)
messages|tojson
messages[1]|tojson(ensure_ascii=True)
unicode|tojson
unicode|tojson(ensure_ascii=true)
'😀'|tojson(true)
control|tojson
mixed|tojson
nothing|tojson
nothing|tojson(indent=2)
empty_map|tojson(indent=2)
[[], {}, [1]]|tojson(indent=2)
none|tojson
yes|tojson
seven|tojson
half|tojson
whole|tojson
large|tojson
small|tojson
larger|tojson
big|tojson
third|tojson
'</script>'|tojson
(1, 2)|tojson
{1: 'a', none: 2, true: 3}|tojson
{'a': 1}|tojson(none, 2)
map|string
mixed|string
half|string
large|string
small|string
none|string
yes|string
undefined_thing|string
name|upper
name|lower
name|title
name|capitalize
unicode|upper
unicode|lower
unicode|title
'ßtraße'|capitalize
text|trim
text|trim|length
'xxaxx'|trim('x')
text|replace('two', '2')
text|replace('two', '2', 1)
text|length
unicode|length
text|wordcount
text.split()
text.split(' ')
text.split('two')
text.split('two', 1)
text.split(none, 1)
text.split(maxsplit=1)
text.split(' ', maxsplit=2)
text.rsplit(' ', 1)
text.rsplit(none, 1)
text.rsplit()
text.rsplit('two')
text.strip()
text.lstrip()
text.rstrip()
'xyxhixyx'.strip('xy')
'xyxhixyx'.lstrip('xy')
'xyxhixyx'.rstrip('xy')
'a,b,c'.split(',')[-1]
'a,b,c'.split(',')[1:]
'abc'.split('')|length if false else 'n'
think.split('</think>')[-1].lstrip('\\n')
think.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')
think.split('</think>', 1)[1]
think.partition('</think>')
think.partition('nope')
think.rpartition('</think>')
think.rpartition('nope')
'</think>' in think
name.title()
name.upper()
name.lower()
name.capitalize()
unicode.swapcase()
'They\\'re bill\\'s 3rd x1y'.title()
'ÀB'.casefold()
name.replace('o', '0')
name.replace('l', 'L', 1)
name.startswith('it')
name.startswith(('x', 'it'))
name.endswith('neil')
name.endswith(('x', 'y'))
name.find('bill')
name.find('nope')
name.rfind('l')
name.index('bill')
name.count('l')
unicode.find('c')
'-'.join(words)
', '.join(['a'])
''.join([])
'a-b'.removeprefix('a-')
'a-b'.removesuffix('-b')
'a-b'.removesuffix('x')
'7'.zfill(3)
'-7'.zfill(4)
'ab'.ljust(5, '.') ~ '|'
'ab'.rjust(5) ~ '|'
'ab'.center(5, '*') ~ '|'
'abc'.center(6, '*') ~ '|'
'ab' | center(7) ~ '|'
'a\\tb'.expandtabs(4)
lines.splitlines()
lines.splitlines(true)
'abc'.isalpha()
'abc1'.isalnum()
'12'.isdigit()
''.isdigit()
' \\t'.isspace()
'Abc Def'.istitle()
'ABC'.isupper()
'abc'.islower()
'{} and {}'.format('a', 1)
'{0}-{1}-{0}'.format('a', 'b')
'{a}'.format(a=1)
'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')
'{:.2f}'.format(3.14159)
'{:03d}'.format(7)
'{!r}'.format('a') if false else 1
'%s has %d' % ('a', 3)
'%.2f' % 3.14159
'%s' % 'x'
'%s and %s'|format('a', 'b')
numbers|sort
numbers|sort(reverse=true)
words|sort
words|sort(case_sensitive=true)
people|sort(attribute='age')|map(attribute='name')|list
people|sort(attribute='age,name', reverse=true)|map(attribute='name')|list
numbers|reverse|list
'abc'|reverse
numbers|first
numbers|last
nothing|first is defined
numbers|sum
people|sum(attribute='age')
numbers|min
numbers|max
words|min
people|max(attribute='age')
numbers|join
numbers|join(', ')
mixed|join('|')
people|join(', ', attribute='name')
people|map(attribute='name')|join(' ')
words|map('upper')|list
words|map('replace', 'p', 'P')|join(',')
people|map(attribute='nope', default='-')|join(',')
people|selectattr('age', 'equalto', 30)|map(attribute='name')|list
people|selectattr('age', '==', 30)|list|length
people|selectattr('city')|list|length
people|rejectattr('city', 'eq', 'X')|map(attribute='name')|list
people|selectattr('age', '>', 26)|list|length
people|selectattr('name', 'in', ['Ann', 'Bob'])|list|length
people|selectattr('nope', 'defined')|list|length
people|selectattr('nope', 'undefined')|list|length
messages|selectattr('role', 'equalto', 'user')|list|length
messages|selectattr('tool_calls', 'defined')|map(attribute='role')|list
messages|rejectattr('role', 'equalto', 'system')|first|string
(messages|selectattr('role', 'equalto', 'user')|list)[-1].role
numbers|select('odd')|list
numbers|select('>', 1)|list
numbers|reject('equalto', 1)|list
mixed|select|list
mixed|select('string')|list
mixed|reject('none')|list
[1, 1, 2, 'a', 'A']|unique|list
people|groupby('city')|map('first')|list
people|groupby('age')|map(attribute='grouper')|list
numbers|batch(2)|list
numbers|batch(2, 'x')|list
numbers|slice(2)|list
numbers|list
'abc'|list
{'a': 1}|list
undefined_thing|default('d')
empty|default('d')
empty|default('d', true)
none|default('d')
none|d('d', boolean=true)
undefined_thing|length
undefined_thing|list
undefined_thing|join
'3'|int
'3.7'|int
'x'|int
'x'|int(5)
3.7|int
'3.5'|float
'x'|float
3.14159|round(2)
3.5|round
2.5|round
3.7|round(0, 'floor')
-3|abs
3.0|abs
text|indent
'a\\nb\\n\\nc'|indent(2)
'a\\nb'|indent(2, true)
'a\\nb\\n\\nc'|indent(2, first=true, blank=true)
'a\\nb'|indent('>>')
'<b>&"\\''|e
'<b>&"\\''|escape
'<b>'|safe
'a b'|urlencode
'<p>a</p> b'|striptags
'a long sentence here'|truncate(10)
'a long sentence here'|truncate(10, true)
'a long sentence here'|truncate(10, true, '')
1000000|filesizeformat
people|map(attribute='name')|first
people|attr('nope') is defined
dict(a=1, b=2)
dict(map)|length
dict(a=1)|tojson
namespace(a=1).a
range(3)|list
range(1, 7, 2)|list
range(5, 0, -2)|list
range(3)
range(3)|length
lipsum is defined
cycler is defined
joiner is defined
loop is defined
[1, 2] == [1, 2]
{'a': 1} == {'a': 1}
(1, 2) == (1, 2)
[1, 2] < [1, 3]
'a' == 1
yes == 1
'\\x41\\u00e9\\t\\\\'
"\\d\\w"
'it''s'
'a' 'b'
-minus
+seven
- 3 ** 2
2 ** 3 ** 2
not 1 == 2
1 + 2 * 3 - 4
(1 + 2) * 3
'a' ~ 1 + 2
[1, 2, 3][1]
[1, 2, 3,]
{'a': 1,}
{'a': {'b': 1}}.a.b
'abc'.nope is defined
seven.nope is defined
messages[1].content['text'] is defined
messages[0].content.text is undefined
True
False
None
true == True
strftime_now('%Y-%m-%d')
strftime_now('%d %B %Y')
strftime_now('%A, %-d %b %y %H:%M:%S %p %j')
strftime_now("%b %d, %Y")
messages[2].tool_calls[0].function.arguments|tojson
messages[2].tool_calls[0].function.arguments.items()|list
messages[2].tool_calls[0].function.arguments|items|map('join', '=')|join('&')
messages[2]|string
people|tojson(indent=1)
numbers|string
numbers|map('string')|join('+')
mixed|map('tojson')|join(' ')
words|sort|join(',')|upper
words|random in words
words|length > 2 and words[0]|length == 4
numbers.index(2)
numbers.count(1)
numbers.copy()
map.copy().a
numbers|pprint
'abc'[5] is defined
'abc'[1:][0]
none ~ ''
''|length
[none]|first is none
(messages[0].content if messages[0].content is string else '')|trim
(none or {}).get('x', 5)
(messages|last).role
(messages|first)['role']
(1 if yes else 0) + 1
"a" in ["a", "b"] and "c" not in ["a"]
'%d' % 3.7
'%5.1f|%-5s|%05d' % (2.25, 'ab', 42)
'%s' % none
'%s %s' % (yes, 1.0)
'%%'|format
'{}'.format(none)
'{}'.format(1.0)
'{}'.format([1, 'a'])
'a'.join(['x', 'y', 'z'])
'abc'|first
'abc'|last
1.0|string
1e100
1.0e-7
100000000000000000000.0
123456789.123456789
"\\\\n"
'\\''
"\\""
'tab:\\t|'
'🎉'|length
'🎉x'[1]
'é'|upper
'ﬁ'|upper
'İ'|lower
words|join(', ')|length
[[1, 2], [3]]|sum(start=[])
[3, 2]|map('string')|list
messages|map(attribute='content')|map('default', '-', true)|list|length
messages|map(attribute='tool_calls')|list|length
messages|map(attribute='role')|unique|list
messages|groupby('role')|map(attribute=0)|list
people[0]['na' ~ 'me']
people|map(attribute='name')|map('length')|sum
[1,2,3]|select('in', [2,3])|list
yes|int
'1_000'|int
'0x1F'|int(0, 16)
'  5 '|int
none|int
none|float
1|float
'inf'|float
[1, [2, 3]]|tojson
"é"|tojson
'a\\u2028b'|tojson
"it's"|tojson
"\\"q\\""|tojson
0.1|tojson
1e22|tojson
123456789012345680.0|tojson
-0.0|tojson
-0.0
5 % 2 == 1
5 is not none
5 is not string
not 5 is string
'a' is string and 5 is number
""".strip()

BLOCKS = [
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for m in messages %}{% if loop.previtem is defined %}{{ loop.previtem.role }}<{% endif %}{{ m.role }}{% if loop.nextitem is defined %}>{{ loop.nextitem.role }}{% endif %}\n{% endfor %}",
    "{% for m in messages %}{{ loop.cycle('odd', 'even') }}{{ loop.changed(m.role) }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %}",
    "{% for m in nothing %}x{% else %}none{% endfor %}",
    "{% for m in undefined_thing %}x{% else %}none{% endfor %}",
    "{% for k in map %}{{ k }},{% endfor %}",
    "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in map|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in map|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in undefined_thing|default({})|items %}x{% else %}empty{% endfor %}",
    "{% for k, v in undefined_thing|items %}x{% else %}empty{% endfor %}",
    "{% for c in 'aé😀' %}[{{ c }}]{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i == 6 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for m in messages recursive %}{{ m.role }}{% endfor %}",
    "{% for g in people|groupby('city') %}{{ g.grouper }}:{{ g.list|length }}{{ g[0] }};{% endfor %}",
    "{% for city, items in people|groupby('city') %}{{ city }}:{{ items|map(attribute='name')|join(',') }};{% endfor %}",
    "{% for row in numbers|batch(2) %}{{ row }};{% endfor %}",
    "{% set x = 1 %}{% for i in numbers %}{% set x = i %}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set ns = namespace(x=1, y=[]) %}{% for i in numbers %}{% set ns.x = i %}{% set ns.y = ns.y + [i] %}{% endfor %}{{ ns.x }}{{ ns.y }}",
    "{% set ns = namespace() %}{% set ns.found = false %}{{ ns.found }}{{ ns.nope is defined }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set x %}  block {{ seven }} {% endset %}[{{ x }}]{{ x|trim }}",
    "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set messages = messages[1:] %}{{ messages[0].role }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c='y') }}{{ m(1, 3, 4) }}{{ m() }}",
    "{% macro m(a) %}{{ a is defined }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ caller(a) }}!{% endmacro %}{% call(x) m(5) %}got {{ x }}{% endcall %}",
    "{% macro outer(n) %}{{ n }}{% if n > 0 %}{{ outer(n - 1) }}{% endif %}{% endmacro %}{{ outer(3) }}",
    "{% macro m() %}{{ later }}{% endmacro %}{% set later = 'set later' %}{{ m() }}",
    "{% set v = 'before' %}{% macro m() %}{{ v }}{% endmacro %}{% set v = 'after' %}{{ m() }}",
    "{% macro m() %}{% set local = 1 %}{{ bos_token }}{% endmacro %}{{ m() }}{{ local is defined }}",
    "{% macro m(x) %}  {{ x }}  {% endmacro %}[{{ m('a')|trim }}]{{ m('b') ~ 'c' }}{{ m('d') + 'e' }}{{ (m('f') | length) }}",
    "{% macro a() %}A{% endmacro %}{% macro b() %}{{ a() }}B{% endmacro %}{{ b() }}",
    "{% macro m(d={}, l=[]) %}{{ d }}{{ l }}{% endmacro %}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{{ undefined_macro is defined }}{% macro undefined_macro() %}{% endmacro %}{{ undefined_macro is defined }}{{ undefined_macro.name }}",
    "{% for i in numbers %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% if messages[0].role == 'system' %}S{% elif yes %}E{% else %}X{% endif %}",
    "{% if not (messages[0].content is none or no) %}ok{% endif %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% filter upper %}abc {{ name }}{% endfilter %}",
    "{% raw %}{{ not rendered }} {% x %}{% endraw %}",
    "{%- raw -%}  {{ x }}  {%- endraw -%}  end",
    "{# comment #}a{#- c -#} b {# x\ny #} c",
    "a\n  {# comment #}\nb",
    "  {% if yes %}\n  a\n  {% endif %}\nb\n",
    "  {%- if yes %}\n  a\n  {%- endif %}\nb\n",
    "  {% if yes -%}\n  a\n  {% endif -%}\n\n b\n\n",
    "  {%+ if yes %}\n  a\n  {%+ endif %}\nb",
    "a {% if yes +%}\nb{% endif %}",
    "{{ 1 }}\n{{ 2 -}}\n\n {{- 3 }}  \n  {{ 4 }}",
    "a\n\n",
    "a\r\nb\r{% if yes %}\r\nc{% endif %}\r\n",
    "\n\n{{ 1 }}\n\n",
    "\t {% set x = 1 %}\t\n{{ x }}",
    "x {% set x = 1 %} y\n{{ x }}",
    "{{ 'a\nb' }}",
    "{{ 'a\r\nb' }}",
    "{% generation %}abc{% endgeneration %}\nx",
    "  {% generation %}\n  abc\n  {% endgeneration %}\nx",
    "{%- generation -%}  abc  {%- endgeneration -%}  x",
    "{% set q = 1 %}{% generation %}{% set q = 2 %}{{ q }}{% endgeneration %}{{ q }}",
    "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}",
    "{{ '{% generation %}' }}{# {% generation %} #}",
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% endif %}{{ system|trim }}",
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% if m.content is string %}{{ m.content }}{% elif m.content %}{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% elif c['type'] == 'image' %}<image>{% endif %}{% endfor %}{% endif %}{{ eos_token + '\\n' }}{% endfor %}",
    "{% for t in tools %}{{ t | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for t in tools %}{{ t.function.name }}({% for k, p in t.function.parameters.properties.items() %}{{ k }}: {{ p.type }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}",
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{% for k, v in c.function.arguments|items %} {{ k }}={{ v if v is string else v|tojson }}{% endfor %}{% endfor %}{% endif %}{% endfor %}",
    "{% set last = namespace(user=-1) %}{% for m in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}{% if last.user < 0 and m.role == 'user' and m.content is string %}{% set last.user = index %}{% endif %}{% endfor %}{{ last.user }}",
    "{{ bos_token }}{% if add_generation_prompt is defined and add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    "{% set d = {'a': 1} %}{% set d = dict(d, b=2) %}{{ d }}",
    "{% set l = [] %}{% for n in numbers %}{% set l = l + [n] %}{% endfor %}{{ l }}",
    "{% set x = 'a' if yes else 'b' %}{% set y = x ~ (1 if no else 2) %}{{ y }}",
    "{% autoescape true %}{{ '<' }}{% endautoescape %}",
    "{% if seven is divisibleby 7 and 'a' is in ['a'] %}ok{% endif %}",
    "{{ [1, 2, 3] | map('string') | join }}{{ numbers | sort | first }}",
    "{% for x in [1, 2, 3] | reverse %}{{ x }}{% endfor %}",
    "{% for x in numbers | sort(reverse=true) %}{{ x }}{% endfor %}",
    "{% for x in range(numbers | length) %}{{ numbers[x] }}{{ numbers[-x - 1] }}{% endfor %}",
    "{% set x = messages | selectattr('role', 'equalto', 'tool') | list %}{{ x[0].name }}{{ x | length }}",
    "{% set parts = think.split('</think>') %}{{ parts | length }}{{ parts[0] }}|{{ parts[1:] | join('</think>') }}",
    "{% if '</think>' in think and think.startswith('<think>') %}{{ (think.split('</think>')|last).strip() }}{% endif %}",
    "{{ think | replace('<think>', '') | trim }}",
    "{% macro render(c) -%}\n  {%- if c is string -%}\n    {{- c -}}\n  {%- else -%}\n    {%- for p in c -%}\n      {{- p.text if p.type == 'text' else '<image>' -}}\n    {%- endfor -%}\n  {%- endif -%}\n{%- endmacro -%}\n[{{ render(messages[4].content) }}]",
    "{{ {'a': 1}.items() | list }}{{ {'a': 1} | items | list }}",
    "{% for key, value in {'x': 1, 'y': [1, 2]}.items() %}{{ key }}{{ value }}{% endfor %}",
    "{{ ('a' ~ 'b')[0] }}{{ ('a' + 'b').upper() }}{{ 'x'.join(['a', 'b']) | upper }}",
    "{{ messages | map(attribute='role') | join(',') }}{{ (messages | map(attribute='role') | list)[1] }}",
    "{% set x = none %}{{ x is none }}{{ x or 'd' }}{{ x | default('e', true) }}",
    "{% if undefined_thing %}a{% else %}b{% endif %}{{ (undefined_thing.x is defined) if undefined_thing else 'no' }}",
    "{% if tools is defined and tools is not none and tools | length > 0 %}T{% endif %}",
    "{% if documents is defined %}D{% else %}-{% endif %}",
    "{{ '' if no }}{{ 'x' if no }}|",
    "{%- set foo -%}\n  a\n  {{- ' b ' -}}\n{%- endset -%}[{{ foo }}]",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.n }}",
    "{% for m in messages %}{% set outer = loop %}{% for c in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% block b %}x{% endblock %}",
    "{{ self is defined }}",
    "{{ caller is defined }}",
    "{{- 'a' -}}   {{- 'b' -}}   c",
    "<|x|>\n{%- if yes %}\n\n{{- ' y' }}\n{%- endif %}\n<|z|>\n",
    "{{ numbers|length }} items{{ 's' if numbers|length != 1 }}",
]

ERRORS = [
    "{{ raise_exception('Only user and assistant roles are supported!') }}",
    "{{ undefined_thing.x }}",
    "{{ undefined_thing['x'] }}",
    "{{ 'a' + 1 }}",
    "{{ 'a' + none }}",
    "{{ 1 + 'a' }}",
    "{{ none.x.y }}",
    "{{ 1 / 0 }}",
    "{{ undefined_function() }}",
    "{{ 'a'.nope() }}",
    "{{ numbers.append(1) }}",
    "{{ map.update({'x': 1}) }}",
    "{{ numbers.pop() }}",
    "{{ undefined_thing|tojson }}",
    "{{ 'a'|nope }}",
    "{{ 'a' is nope }}",
    "{% if %}",
    "{% for x in %}{% endfor %}",
    "{% endif %}",
    "{% if yes %}",
    "{{ 1 + }}",
    "{{ 'abc",
    "{% nope %}",
    "{{ undefined_thing + 'a' }}",
    "{{ name.index('nope') }}",
    "{{ 'abc'.split('') }}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{{ seven|length }}",
    "{{ none|length }}",
]

# What is known to come out otherwise here, and why. The test checks that each of these still does.
KNOWN_DIFFERENCES = {
    "{{ range(3) is sequence }}": "minijinja's range is an iterable without access by index",
    "{{ range(3) }}": "minijinja prints a range as the list of its numbers",
    "{{ map.items() }}": "minijinja prints the items as a list, Python as dict_items(...)",
    "{{ {1: 'a', none: 2, true: 3}|tojson }}": "in Python 1 and True are the same key",
    "{{ people|max(attribute='age') }}": "of equal maxima Python takes the first, minijinja the last",
    "{{ numbers|pprint }}": "another pretty-printer",
    "{{ '%s has %d' % ('a', 3) }}": "minijinja has no % on strings: an error; the filter format does the same",
    "{{ '%.2f' % 3.14159 }}": "as above",
    "{{ '%s' % 'x' }}": "as above",
    "{{ '%d' % 3.7 }}": "as above",
    "{{ '%5.1f|%-5s|%05d' % (2.25, 'ab', 42) }}": "as above",
    "{{ '%s' % none }}": "as above",
    "{{ '%s %s' % (yes, 1.0) }}": "as above",
    "{{ 'a b'|urlencode }}": "filter not there: an error",
    "{{ '<p>a</p> b'|striptags }}": "filter not there: an error",
    "{{ 1000000|filesizeformat }}": "filter not there: an error",
    "{{ words|random in words }}": "filter not there: an error",
    "{{ lipsum is defined }}": "function not there",
    "{{ cycler is defined }}": "function not there",
    "{{ joiner is defined }}": "function not there",
    "{{ self is defined }}": "blocks are not there",
    "{{ +seven }}": "minijinja has no unary plus: an error",
    "{% macro m(a) %}{{ a is defined }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}": "minijinja's macros take no further arguments: an error",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}": "in minijinja the default of an argument does not see the arguments before it",
}


class GenerationTag(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render_body"), [], [], body).set_lineno(line)

    def render_body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        return (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=NOW)).strftime(format)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def main():
    templates = ["{{ " + line + " }}" for line in EXPRESSIONS.split("\n") if line] + BLOCKS + ERRORS
    cases, refused, known_differences = [], [], []
    for template in templates:
        try:
            expected = environment().from_string(template).render(**CONTEXT)
        except Exception as error:  # whatever Python raises, the template does not render
            refused.append({"template": template, "error": f"{type(error).__name__}: {error}"})
            continue
        reason = KNOWN_DIFFERENCES.get(template)
        if reason:
            known_differences.append({"template": template, "expected": expected, "reason": reason})
        else:
            cases.append({"template": template, "expected": expected})
    assert len(known_differences) == len(KNOWN_DIFFERENCES)
    golden = {"jinja": jinja2.__version__, "now": NOW, "context": CONTEXT, "cases": cases, "known_differences": known_differences, "refused": refused}
    path = pathlib.Path(__file__).parents[2] / "tests/golden/text/jinja.json"
    path.write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print(f"{path}: {len(cases)} rendered, {len(refused)} refused, {path.stat().st_size} bytes")
    for entry in refused:
        print("  refused:", entry["template"], "--", entry["error"][:90])


main()
