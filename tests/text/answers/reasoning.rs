//! Reasoning apart from the answer.

use super::*;

const THINK: ReasoningMarkers = ReasoningMarkers { open: "<think>", close: "</think>" };

fn thinking(beginning: Beginning) -> AnswerSettings {
    AnswerSettings {
        reasoning: Some((THINK, beginning)),
        tools: Some((format_named("hermes"), tools())),
        channels: None,
    }
}

#[test]
fn reasoning_is_set_apart() {
    use Beginning::{Inside, Outside, Undecided};
    for (beginning, text, reasoning, content) in [
        (Undecided, "<think>\nHm.\n\nSo.\n</think>\n\nYes. ", "Hm.\n\nSo.", "Yes. "),
        (Undecided, "\n<think>a</think>b</think>", "a", "b</think>"),
        (Undecided, "No <think>here</think>.", "", "No <think>here</think>."),
        (Undecided, "<thinking>", "", "<thinking>"),
        (Undecided, "<think>\n\n</think>\n\nYes.", "", "Yes."),
        (Undecided, "<think>never over ", "never over", ""),
        (Undecided, " <thin", "", " <thin"),
        (Inside, "\nHm.\n</think>\nYes.", "Hm.", "Yes."),
        (Inside, "a </thin", "a </thin", ""),
        (Outside, "<think>x</think>", "", "<think>x</think>"),
        (Outside, "\n Yes.", "", "\n Yes."),
    ] {
        for tools in [true, false] {
            let mut settings = thinking(beginning);
            if !tools {
                settings.tools = None;
            }
            let read = read_all_ways(text, &settings, End::Complete);
            let wanted = Read { reasoning: reasoning.to_owned(), content: content.to_owned(), ..Read::default() };
            assert_eq!(read, wanted, "{beginning:?} {text:?}");
        }
    }
}

#[test]
fn calls_in_the_reasoning_are_reasoning() {
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let text = format!("<think>I could {call}.</think>\n\n{call}");
    let read = read_all_ways(&text, &thinking(Beginning::Undecided), End::Complete);
    assert_eq!(read.reasoning, format!("I could {call}."));
    assert_eq!((read.content.as_str(), read.calls.len()), ("", 1));
}

#[test]
fn the_prompt_says_where_the_answer_begins() {
    use Beginning::{Inside, Outside, Undecided};
    for (prompt, continued, wanted) in [
        ("<|im_start|>assistant\n", None, Undecided),
        ("<|im_start|>assistant\n<think>\n", None, Inside),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", None, Outside),
        ("<|assistant|></think>", None, Outside),
        ("say <think> twice<|im_start|>assistant\n", None, Undecided),
        ("…<think>Let me", Some("<think>Let me"), Inside),
        ("…<think>x</think>So", Some("<think>x</think>So"), Outside),
        ("…Well", Some("Well"), Outside),
        ("…", Some(""), Undecided),
    ] {
        assert_eq!(THINK.beginning(prompt, continued), wanted, "{prompt:?}");
    }
}

#[test]
fn markers_are_told_by_the_template() {
    for (template, open) in [
        ("{{ content.split('</think>')[-1] }}", Some("<think>")),
        ("'<seed:think>' + reasoning", Some("<seed:think>")),
        ("[THINK]{{ x }}[/THINK]", Some("[THINK]")),
        ("<|START_THINKING|>", Some("<|START_THINKING|>")),
        ("<|im_start|>", None),
    ] {
        assert_eq!(ReasoningMarkers::of_template(template).map(|markers| markers.open), open);
    }
}

#[test]
fn channels_are_told_apart() {
    let text = "<|channel|>analysis<|message|>The user greets. <|end|><|start|>assistant<|channel|>analysis<|message|>\nSo do I.<|end|>\
                <|start|>assistant<|channel|>final<|message|>Hello!\n\n";
    let read = read_all_ways(text, &of_format(format_named("harmony")), End::Complete);
    assert_eq!(read.reasoning, "The user greets.\n\n\nSo do I.");
    assert_eq!(read.content, "Hello!\n\n");
    // The prompt may hold the beginning of the message.
    let continued = AnswerSettings {
        channels: Some(("<|channel|>analysis<|message|>I thi".to_owned(), false)),
        ..Default::default()
    };
    let read = read_all_ways("nk.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", &continued, End::Complete);
    assert_eq!((read.reasoning.as_str(), read.content.as_str()), ("nk.", "Yes."));
    // Reasoning may stay in the content, with its markers.
    let kept = AnswerSettings { channels: Some((String::new(), true)), ..Default::default() };
    let read = read_all_ways(
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        &kept,
        End::Complete,
    );
    assert_eq!((read.reasoning.as_str(), read.content.as_str()), ("", "<|channel|>analysis<|message|>Hm.<|end|>Yes."));
    // A call of a function that nobody offered is text.
    let without = AnswerSettings { channels: Some((String::new(), false)), ..Default::default() };
    let call = "<|channel|>commentary to=functions.now<|message|>{}<|call|>";
    assert_eq!(
        read_all_ways(call, &without, End::Complete).content,
        "<|channel|>commentary to=functions.now<|message|>{}"
    );
}
