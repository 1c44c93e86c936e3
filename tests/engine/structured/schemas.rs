//! Random schemas: every answer parses, and an independent validator takes it.

use rillm::engine::FinishReason;
use serde_json::{Map, Value, json};

use super::*;
use crate::support::soak::is_soak;

fn schemas() -> usize {
    if is_soak() { 200 } else { 100 }
}

/// splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

const KEYS: [&str; 12] =
    ["name", "age", "city", "is \"ok\"", "größe", "tags", "a/b", "x", "price", "note", "größer 😀", "kind"];

/// Bounded everywhere, so that each answer ends.
fn schema(random: &mut Random, depth: usize, definitions: &[&str]) -> Value {
    let kinds = if depth == 0 { 9 } else { 13 };
    match random.below(kinds) {
        0 => json!({"type": "boolean"}),
        1 => json!({"type": "null"}),
        2 => {
            let low = random.below(200) as i64 - 100;
            json!({"type": "integer", "minimum": low, "maximum": low + random.below(1000) as i64})
        }
        3 => {
            let low = random.below(100) as i64 - 50;
            json!({"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + 20, "multipleOf": random.one(&[1, 2, 3, 5])})
        }
        4 => json!({"type": "number", "minimum": -2, "maximum": 9.5, "multipleOf": random.one(&[0.5, 0.25, 1.5])}),
        5 => {
            let low = random.below(3);
            json!({"type": "string", "minLength": low, "maxLength": low + random.below(8)})
        }
        6 => {
            let patterns = ["^[a-c]{2,4}$", "^(ab|cd)-[0-9]{2}$", "^[A-Z][a-z]{1,6}$", "^\\d{3}$", "^(ja|nein|süß)$"];
            json!({"type": "string", "pattern": random.one(&patterns)})
        }
        7 => json!({"type": "string", "format": random.one(&["date", "ipv4"])}),
        8 => match random.below(3) {
            0 => {
                json!({"const": random.one(&[json!("fixed"), json!(12), json!([1, {"a": null}]), json!("say \"hi\"\n")])})
            }
            1 => json!({"enum": ["red", "green", "dark blue", 7, null, true, {"k": [0.5]}]}),
            _ => json!({"type": "string", "enum": ["Ω", "one", "one two", "one two three"]}),
        },
        9 => {
            let least = random.below(2);
            let items = schema(random, depth - 1, definitions);
            json!({"type": "array", "items": items, "minItems": least, "maxItems": least + 1 + random.below(2)})
        }
        10 => {
            let items: Vec<Value> = (0..1 + random.below(2)).map(|_| schema(random, depth - 1, definitions)).collect();
            let count = items.len();
            json!({"type": "array", "prefixItems": items, "items": false, "minItems": count})
        }
        11 if random.chance(50) && !definitions.is_empty() => {
            json!({"$ref": format!("#/$defs/{}", random.one(definitions))})
        }
        11 => {
            let options: Vec<Value> =
                (0..2 + random.below(2)).map(|_| schema(random, depth - 1, definitions)).collect();
            json!({"anyOf": options})
        }
        _ => object(random, depth, definitions),
    }
}

fn object(random: &mut Random, depth: usize, definitions: &[&str]) -> Value {
    let mut properties = Map::new();
    let mut required = vec![];
    for _ in 0..1 + random.below(3) {
        let key = random.one(&KEYS);
        let of = schema(random, depth - 1, definitions);
        if properties.insert(key.to_owned(), of).is_none() && random.chance(70) {
            required.push(key);
        }
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn random_schema(random: &mut Random) -> Value {
    let mut root =
        if random.chance(70) { object(random, 2, &["leaf", "pair"]) } else { schema(random, 2, &["leaf", "pair"]) };
    root["$defs"] = json!({
        "leaf": schema(random, 0, &[]),
        "pair": {"type": "array", "items": {"$ref": "#/$defs/leaf"}, "minItems": 2, "maxItems": 2},
    });
    root
}

#[test]
fn answers_to_random_schemas_are_valid() {
    let engine = engine();
    let mut random = Random(20_260);
    let questions = ["Answer in JSON.", "Tell me a story.", "Anna is 12 years old and lives in Rome. Answer in JSON."];
    let (mut tokens, begin) = (0, std::time::Instant::now());
    for index in 0..schemas() {
        let schema = random_schema(&mut random);
        let mut request = ask(random.one(&questions), json!({"max_tokens": 250}));
        request["response_format"] =
            json!({"type": "json_schema", "json_schema": {"name": "random", "strict": true, "schema": schema}});
        if index % 2 == 1 {
            request["temperature"] = json!(1.2);
            request["seed"] = json!(index);
        }
        let answer = chat(&engine, &request);
        tokens += answer.tokens.len();
        assert_eq!(answer.reason, FinishReason::Stop, "{schema}\n{answer:?}");
        let value: Value = match serde_json::from_str(&answer.text) {
            Ok(value) => value,
            Err(error) => panic!("{schema}\n{error}: {:?}", answer.text),
        };
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        if let Err(error) = validator.validate(&value) {
            panic!("{schema}\n{error}: {:?}", answer.text);
        }
    }
    println!("{} schemas, {tokens} tokens, {:.1} s", schemas(), begin.elapsed().as_secs_f64());
}
