//! Filters, tests, methods and functions that pay for what they are about to do, and whose results are measured.
//!
//! A bound of the work follows from the arguments: how often each byte of the value is looked at, whether the other arguments may be
//! written once for each of its items, and widths. It may be far above the truth, as long as templates that are in use stay far below
//! what a rendering may spend.

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State, Value, filters, functions, tests};

use super::budget::{pay, refused};
use super::values::{ITEM, admit, measure};

/// Widths, indentations and counts that a filter or a method takes. Larger ones are no layout.
const LARGEST_WIDTH: i64 = 10_000;

/// What a call costs.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    /// Units for each byte of the value.
    bytes: u64,
    /// Whether the other arguments may come into the result once for each item of the value, or are compared with each.
    product: bool,
    /// Whether numbers among the arguments are widths, which count for each byte of the value.
    widths: bool,
}

/// Each byte is looked at a few times.
const LINEAR: Cost = Cost { bytes: 8, product: false, widths: false };
/// A text falls into items.
const ITEMS: Cost = Cost { bytes: ITEM, product: false, widths: false };
/// Items are compared with each other.
const SORTED: Cost = Cost { bytes: 32, product: true, widths: false };
/// The other arguments meet each item.
const PRODUCT: Cost = Cost { bytes: ITEM, product: true, widths: false };
/// Numbers are widths.
const WIDTHS: Cost = Cost { bytes: ITEM, product: true, widths: true };

/// The cost of a method of a text, a list or a dict.
fn method_cost(method: &str) -> Cost {
    match method {
        "split" | "rsplit" | "splitlines" | "items" | "keys" | "values" | "copy" => ITEMS,
        "strip" | "lstrip" | "rstrip" | "join" | "format" => PRODUCT,
        "ljust" | "rjust" | "center" | "zfill" | "expandtabs" => WIDTHS,
        _ => LINEAR,
    }
}

/// Adds a filter of ours.
pub(super) fn add_filter(environment: &mut Environment<'static>, name: &'static str, filter: Value) {
    let cost = match name {
        "dictsort" | "sort" | "unique" | "groupby" | "min" | "max" => SORTED,
        "list" | "reverse" | "split" | "lines" | "items" | "last" | "wordcount" => ITEMS,
        "join" | "format" | "trim" | "map" | "select" | "reject" | "selectattr" | "rejectattr" | "sum" | "attr" => {
            PRODUCT
        }
        "center" | "indent" | "tojson" | "batch" | "slice" | "round" => WIDTHS,
        _ => LINEAR,
    };
    environment.add_filter(name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
        let arguments = arguments.into_values();
        guard(state, name, cost, &arguments, |state| filter.call(state, &arguments))
    });
}

/// What calls a method of a value with arguments.
pub(super) fn method(
    state: &mut State,
    name: &str,
    value: &Value,
    arguments: &[Value],
    call: impl FnOnce(&mut State) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let all: Vec<Value> = std::iter::once(value).chain(arguments).cloned().collect();
    guard(state, name, method_cost(name), &all, call)
}

pub(super) fn install(environment: &mut Environment<'static>) {
    // Not of Jinja: one is lazy at any depth, one prints all that there is.
    for name in ["chain", "zip"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");

    for (name, filter) in [
        ("lower", Value::from_function(filters::lower)),
        ("upper", Value::from_function(filters::upper)),
        ("title", Value::from_function(filters::title)),
        ("reverse", Value::from_function(filters::reverse)),
        ("trim", Value::from_function(filters::trim)),
        ("join", Value::from_function(filters::join)),
        ("split", Value::from_function(filters::split)),
        ("lines", Value::from_function(filters::lines)),
        ("round", Value::from_function(filters::round)),
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("first", Value::from_function(filters::first)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("sort", Value::from_function(filters::sort)),
        ("list", Value::from_function(filters::list)),
        ("batch", Value::from_function(filters::batch)),
        ("slice", Value::from_function(filters::slice)),
        ("sum", Value::from_function(filters::sum)),
        ("select", Value::from_function(filters::select)),
        ("reject", Value::from_function(filters::reject)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("map", Value::from_function(filters::map)),
        ("groupby", Value::from_function(filters::groupby)),
        ("unique", Value::from_function(filters::unique)),
        ("pprint", Value::from_function(filters::pprint)),
        ("format", Value::from_function(filters::format)),
    ] {
        add_filter(environment, name, filter);
    }

    let equal = Value::from_function(tests::is_eq);
    let unequal = Value::from_function(tests::is_ne);
    let less = Value::from_function(tests::is_lt);
    let less_or_equal = Value::from_function(tests::is_le);
    let greater = Value::from_function(tests::is_gt);
    let greater_or_equal = Value::from_function(tests::is_ge);
    for (names, test) in [
        (&["eq", "equalto", "=="][..], equal),
        (&["ne", "!="], unequal),
        (&["lt", "lessthan", "<"], less),
        (&["le", "<="], less_or_equal),
        (&["gt", "greaterthan", ">"], greater),
        (&["ge", ">="], greater_or_equal),
        (&["in"], Value::from_function(tests::is_in)),
        (&["startingwith"], Value::from_function(tests::is_startingwith)),
        (&["endingwith"], Value::from_function(tests::is_endingwith)),
        (&["lower"], Value::from_function(tests::is_lower)),
        (&["upper"], Value::from_function(tests::is_upper)),
    ] {
        for &name in names {
            let test = test.clone();
            environment.add_test(name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
                let arguments = arguments.into_values();
                let both = Cost { bytes: 1, ..LINEAR };
                guard(state, name, both, &arguments, |state| test.call(state, &arguments))
                    .map(|result| result.is_true())
            });
        }
    }

    // `range` stays as it is: it has 100,000 items at most, which hold nothing.
    let dict = Value::from_function(functions::dict);
    environment.add_function("dict", move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
        let made = dict.call(state, &arguments.into_values())?;
        admit(state, made)
    });
}

/// Pays for a call, makes it, and measures what comes of it.
fn guard(
    state: &mut State,
    name: &str,
    cost: Cost,
    arguments: &[Value],
    call: impl FnOnce(&mut State) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let [value, others @ ..] = arguments else { return call(state) };
    let whole = measure(state, value)?;
    let mut units = whole.size.saturating_mul(cost.bytes);
    let mut others_size = 0_u64;
    let mut width = 0_i64;
    for argument in others {
        others_size = others_size.saturating_add(measure(state, argument)?.size);
        if cost.widths {
            width = width.max(widest(argument));
        }
    }
    if width > LARGEST_WIDTH {
        return Err(refused(format!("{name} is asked for {width}, wanted at most {LARGEST_WIDTH}")));
    }
    let items = match value.as_str() {
        // A placeholder each; other texts are taken character by character.
        Some(text) if name == "format" => text.bytes().filter(|byte| matches!(byte, b'%' | b'{')).count() as u64,
        Some(text) => text.len() as u64,
        None => whole.count,
    };
    if name == "format" {
        check_format(value.as_str().unwrap_or_default())?;
    }
    units = units.saturating_add(if cost.product { (items + 1).saturating_mul(others_size) } else { others_size });
    let levels = u64::from(whole.depth) + 1;
    units = units.saturating_add(whole.size.saturating_mul(levels).saturating_mul(width.max(0) as u64));
    pay(state, units)?;
    let result = call(state)?;
    admit(state, result)
}

/// The largest number among an argument, which may be the named ones.
fn widest(argument: &Value) -> i64 {
    match argument.kind() {
        ValueKind::Number => argument.as_i64().unwrap_or(i64::MAX),
        ValueKind::Map => {
            let pairs = argument.as_object().and_then(|pairs| pairs.try_iter_pairs());
            pairs
                .into_iter()
                .flatten()
                .map(|(_, value)| if value.kind() == ValueKind::Number { widest(&value) } else { 0 })
                .max()
                .unwrap_or(0)
        }
        _ => 0,
    }
}

/// Widths and precisions that stand in a text for `format`.
fn check_format(text: &str) -> Result<(), Error> {
    let longest = text.split(|character: char| !character.is_ascii_digit()).map(str::len).max().unwrap_or(0);
    if longest > 4 {
        return Err(refused("format is asked for a width of more than four digits"));
    }
    Ok(())
}
