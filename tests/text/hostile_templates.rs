//! Chat templates that are made to use up memory, stack or time: each ends in an error soon, and what is in use is far from the limits.

use std::time::{Duration, Instant};

use rillm::error::Code;
use rillm::text::chat::ChatTemplate;
use serde_json::{Value, json};

/// As much stack as WebAssembly has here.
const STACK: usize = 1 << 20;

/// Renders in a thread with little stack.
fn render(template: &str, context: &Value) -> Result<String, rillm::error::Error> {
    let (template, context) = (template.to_owned(), context.clone());
    let thread = std::thread::Builder::new().stack_size(STACK);
    let rendered = thread.spawn(move || ChatTemplate::new(&template)?.render_at(&context, 0));
    rendered.unwrap().join().unwrap()
}

/// The most memory that this process has held, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// `body` again and again, with a namespace `n` that begins with these attributes.
fn repeated(attributes: &str, body: &str, after: &str) -> String {
    format!("{{% set n = namespace({attributes}) %}}{{% for i in range(99999) %}}{body}{{% endfor %}}{after}")
}

fn hostile() -> Vec<(String, &'static str)> {
    let grown = |body: &str| repeated("x='xxxxxxxxxx', y=''", body, "");
    // A text of 8 MiB, then a body that may take it each time.
    let large = |body: &str| repeated("x='x' * 8388608, y='x' * 8388608, z=[], d={}, c=0", body, "");
    let set = |value: &str| format!("{{% set n.x = {value} %}}");
    let bytes = "bytes";
    let mut all: Vec<(String, &str)> = Vec::new();
    // Texts that double.
    for value in [
        "n.x ~ n.x",
        "n.x + n.x",
        "n.x * 2",
        "2 * n.x",
        "n.x.replace('x', n.x)",
        "n.x|replace('x', 'xx')",
        "[n.x, n.x]|join",
        "[n.x, n.x]|join(n.x)",
        "n.x.join([n.x, n.x])",
        "n.x|join(n.x)",
        "'%s%s'|format(n.x, n.x)",
        "'{0}{0}'.format(n.x)",
        "'{a}{a}'.format(a=n.x)",
        "[n.x, n.x]|string",
        "[n.x, n.x]|tojson",
        "{'a': n.x, 'b': n.x}|pprint",
        "[n.x]|map('replace', 'x', n.x)|join",
        "(n.x ~ '\\n')|indent(n.x)",
        "[n.x, n.x]|tojson(indent=n.x)",
        "[n.x, n.x]|tojson(separators=(n.x, n.x))",
        "n.x|e|replace('x', '&&')",
        "[n.x, n.x]|sum(start='')|string ~ n.x ~ n.x",
    ] {
        all.push((grown(&set(value)), ""));
    }
    all.push((grown("{% set x %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = x %}"), bytes));
    all.push(("{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}".to_owned() + &grown("{% set n.x = m(n.x) %}"), bytes));
    all.push((
        grown("{% set y %}{% filter upper %}{{ n.x }}{{ n.x }}{% endfilter %}{% endset %}{% set n.x = y %}"),
        bytes,
    ));
    all.push((grown("{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% set y %}{% call m() %}{{ n.x }}{% endcall %}{% endset %}{% set n.x = y %}"), bytes));
    all.push((
        repeated("x=''", &format!("{{% set n.x %}}{}{{{{ n.x }}}}{{% endset %}}", "raw ".repeat(1000)), ""),
        bytes,
    ));
    // Large at once.
    for (value, reason) in [
        ("'x' * 10 ** 9", bytes),
        ("'x' * 1000 * 1000 * 1000 * 1000", bytes),
        ("('x' * 60000) * 60000", bytes),
        ("[0] * 10 ** 9", bytes),
        ("(0, 1) * 10 ** 8", bytes),
        ("range(10 ** 9)", "range"),
        ("'x'|center(10 ** 9)", "1000000000"),
        ("'x'.center(10 ** 9)", "1000000000"),
        ("'x'.ljust(10 ** 9)", "1000000000"),
        ("'x'.rjust(10 ** 9, 'é')", "1000000000"),
        ("'1'.zfill(10 ** 9)", "1000000000"),
        ("'\\t'.expandtabs(10 ** 9)", "1000000000"),
        ("'a\\nb'|indent(10 ** 9)", "1000000000"),
        ("'a\\nb'|indent(width=10 ** 9)", "1000000000"),
        ("[[1]]|tojson(indent=10 ** 9)", "1000000000"),
        ("[1]|batch(10 ** 9, 0)", "1000000000"),
        ("[1]|slice(10 ** 9)", "1000000000"),
        ("1.5|round(10 ** 9)", "1000000000"),
        ("'%999999999d'|format(1)", "four digits"),
        ("'%.999999999f'|format(1.5)", "four digits"),
        ("'{:>999999999}'.format(1)", "four digits"),
        ("strftime_now('%c' * 10000)", "too long"),
        ("('x' * 33554432)|list", bytes),
        ("('x ' * 8388608)|upper|lower|title|upper", bytes),
        ("raise_exception('x' * 8388608)", "xxxx"),
    ] {
        all.push((format!("{{{{ {value} }}}}"), reason));
    }
    // Nested in itself, doubled, or with what can change.
    for (value, reason) in [
        ("[n.x]", "nested"),
        ("[[n.x], 1][:1]", "nested"),
        ("(n.x, 1)", "nested"),
        ("{'a': n.x}", "nested"),
        ("dict(a=n.x)", "nested"),
        ("[n.x]|list", "nested"),
        ("[n.x]|batch(2)|list", "nested"),
        ("[n.x]|groupby('a')|list", ""),
        ("[n.x, n.x]", bytes),
        ("n.x|list + n.x|list", ""),
        ("[n]", "namespace"),
        ("n", "namespace"),
        ("[loop]", "loop"),
        ("{'a': loop}", "loop"),
        ("[1]|map('default', loop)|list", ""),
    ] {
        all.push((repeated("x=[1]", &set(value), "{{ n.x }}"), reason));
    }
    all.push((repeated("x=[]", "{% set n.x = n.x + [i, i, i, i, i, i, i, i] %}", ""), bytes));
    // The same large text is read again and again.
    for body in [
        "{% if n.x == n.y %}{% endif %}",
        "{% if [n.x] <= [n.y] < [n.y] %}{% endif %}",
        "{% if 'y' in n.x %}{% endif %}",
        "{% if n.x is eq(n.y) %}{% endif %}",
        "{% if n.x is startingwith(n.y) %}{% endif %}",
        "{% if n.x is upper %}{% endif %}",
        "{% if loop.changed(n.x) %}{% endif %}{% set n.x = n.x[1:] %}",
        "{% set a = n.x[8388607] %}",
        "{% set a = n.x[-1:] %}",
        "{% set a = n.x|length %}",
        "{% set a = n.x|trim(n.y) %}",
        "{% set a = n.x.count('y') %}",
        "{% set a = n.x.split('y') %}",
        "{% set a = {n.x: 1}[n.y] %}",
        "{% set a = n.x|int %}",
        "{% for c in n.x[1:] %}{% break %}{% endfor %}",
        "{% set a = (n.x, n.y)|unique|list %}",
        "{% set a = [n.x, n.y]|sort %}",
        "{{ n.x }}",
        "{% set a %}{{ n.x }}{% endset %}",
        "{% autoescape true %}{{ n.x }}{% endautoescape %}",
    ] {
        all.push((large(body), bytes));
    }
    for body in
        ["{% set a = [1, *n.z] %}", "{{ [1]|first(*n.z) }}", "{% set a, b = n.z[:2] %}", "{% set a = n.z + n.z %}"]
    {
        all.push((repeated("z=range(99999)|list", body, ""), ""));
    }
    // Deep by their syntax.
    let chains =
        ["~ a", "+ 1", "* 2", ".a", "[0]", "()", "|trim", "and a", "or 1", "is a", "< a", "** 2", "if a else a"];
    for chain in chains {
        all.push((format!("{{{{ a {} }}}}", [chain; 50_000].join(" ")), ""));
    }
    for (open, close) in [("(", ")"), ("[", "]"), ("{1:", "}"), ("not ", ""), ("-", ""), ("f(", ")"), ("a[", "]")] {
        all.push((format!("{{{{ {}1{} }}}}", open.repeat(50_000), close.repeat(50_000)), ""));
    }
    for (open, close) in
        [("{% if a %}", "{% endif %}"), ("{% for a in b %}", "{% endfor %}"), ("{% filter upper %}", "{% endfilter %}")]
    {
        all.push((open.repeat(20_000) + &close.repeat(20_000), ""));
    }
    all.push((format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}".repeat(50_000)), "elif"));
    all.push((format!("{{{{ dict({}) }}}}", "1, ".repeat(70_000)), "items"));
    all.push((format!("{{{{ [{}] }}}}", "1, ".repeat(70_000)), "items"));
    let parameters: Vec<String> = (0..300).map(|i| format!("p{i}")).collect();
    all.push((format!("{{% macro m({}) %}}{{% endmacro %}}", parameters.join(", ")), "parameters"));
    let text = "x".repeat(3000);
    let constants = format!("{{{{ a{} }}}}", format!(" ~ '{text}'").repeat(240));
    all.push((constants.clone() + &constants, "too long"));
    // Calls of calls.
    for body in [
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    ] {
        all.push((body.to_owned(), ""));
    }
    for body in [
        "{% include 'chat_template' %}",
        "{% import 'chat_template' as a %}",
        "{% extends 'chat_template' %}",
        "{% from 'chat_template' import a %}",
    ] {
        all.push((body.to_owned(), "template"));
    }
    all
}

#[test]
fn hostile_templates_end_in_an_error() {
    let mut slowest = (Duration::ZERO, String::new());
    let templates = hostile();
    for (template, reason) in &templates {
        let begin = Instant::now();
        let rendered = render(template, &json!({}));
        let took = begin.elapsed();
        let shown: String = template.chars().take(160).collect();
        match rendered {
            Ok(text) => panic!("{shown} gives {} bytes", text.len()),
            Err(error) => {
                assert_eq!(error.code(), Code::ChatTemplate, "{shown}: {error}");
                assert!(error.message().contains(reason), "{shown}: {error}");
                assert!(error.message().len() < 5_000, "{shown}: {} bytes", error.message().len());
            }
        }
        if took > slowest.0 {
            slowest = (took, shown);
        }
    }
    println!("{} templates; the slowest took {:?}: {}", templates.len(), slowest.0, slowest.1);
    if let Some(peak) = peak_memory() {
        println!("at most {peak} bytes");
        assert!(peak < 2 << 30, "{peak} bytes");
    }
}

#[test]
fn what_templates_do_is_far_from_the_limits() {
    let messages: Vec<Value> =
        (0..2_000).map(|i| json!({"role": "user", "content": format!("message {i} {}", "word ".repeat(20))})).collect();
    let tools: Vec<Value> = (0..50).map(|i| json!({"type": "function", "function": {"name": format!("f{i}"), "parameters":
        {"type": "object", "properties": {"a": {"type": "string", "description": "what it is"}, "b": {"type": "integer"}}}}})).collect();
    let context = json!({"messages": messages, "tools": tools});
    for (template, wanted) in [
        // Lists and texts that grow by a message each time.
        (
            "{% set n = namespace(l=[]) %}{% for m in messages %}{% set n.l = n.l + [m] %}{% endfor %}{{ n.l|length }}",
            "2000",
        ),
        (
            "{% set n = namespace(t='') %}{% for m in messages %}{% set n.t = n.t ~ m.content|trim %}{% endfor %}{{ n.t|length }}",
            "222890",
        ),
        (
            "{% set n = namespace(c=0) %}{% for m in messages[1:] %}{% if m == messages[-1] or m.content.strip().startswith('no') %}{% set n.c = n.c + 1 %}{% endif %}{% endfor %}{{ n.c }}",
            "1",
        ),
        (
            "{% for m in messages[:20] %}{% for t in tools %}{{ (t|tojson(indent=4))[:1] }}{% endfor %}{% endfor %}{{ messages[::-1][0].content[:8] }}",
            "",
        ),
        (
            "{% set a = messages %}{% for i in range(1000) %}{% set a = a[0:] %}{% endfor %}{{ a[1999].content[:12] }}",
            "message 1999",
        ),
        (
            "{{ messages|map(attribute='role')|unique|join(',') }}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}",
            "user2000",
        ),
        (
            "{{ [1, 2] + [3] * 2 }}{{ 1 if 1 < 2 <= 2 }}{{ 1 if 1 not in [2] }}{{ 1 if 'a' in 'cat' != true }}{{ true + 1 }}{{ 0.5 * 4 }}{{ 'ab' * -1 }}",
            "[1, 2, 3, 3]11122.0",
        ),
        (
            "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ caller() if caller is defined }}{% endmacro %}{{ m(*[1], **{'b': 3}) }}{% call m(4) %}!{% endcall %}",
            "1342!",
        ),
        (
            "{% for a in [[1, [2]]] recursive %}{{ loop(a) if a is sequence and a is not string else a }}{% endfor %}",
            "12",
        ),
        (
            "{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{{ loop.index }}{% if loop.changed(a) %}c{% endif %}{% endfor %}",
            "x11c",
        ),
        ("{% for m in messages if m.content is string and loop is not defined %}{% endfor %}ok", "ok"),
    ] {
        let rendered = render(template, &context).unwrap_or_else(|error| panic!("{template}: {error}"));
        assert!(rendered.ends_with(wanted), "{template}: {}", &rendered[..rendered.len().min(200)]);
    }
}

#[test]
fn values_are_let_in_up_to_the_limits() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |value, _| json!([value]));
    assert!(render("{{ a }}", &json!({"a": nested(199)})).is_ok());
    let error = render("{{ a }}", &json!({"a": nested(201)})).unwrap_err();
    assert_eq!(error.code(), Code::ChatTemplate);
    assert!(error.message().contains("nested"), "{error}");
    assert_eq!(render("{{ ('x' * 10000000)|length }}", &json!({})).unwrap(), "10000000");
    assert!(render("{{ 'x' * 33554433 }}", &json!({})).is_err());
    assert_eq!(
        render("{{ ('%9999d'|format(1))|length }}{{ 'a'|center(10000)|length }}", &json!({})).unwrap(),
        "999910000"
    );
    let chain = |n: usize| format!("{{{{ 'a'{} }}}}", " ~ 'a'".repeat(n));
    assert_eq!(render(&chain(250), &json!({})).unwrap().len(), 251);
    assert!(render(&chain(251), &json!({})).is_err());
}
