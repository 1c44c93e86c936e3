//! A template's instructions with calls of `operators.rs` where minijinja's own would cost what their operands decide.
//!
//! minijinja counts steps and has no hook for the size of values, so an operator that copies 32 MiB costs it as much as `1 + 1`. Its
//! machinery hands out the instructions of a compiled template: here each of these operators becomes a call of a function that pays
//! first. Whatever else is there stays as it is.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::{Error, Value};

use super::budget::refused;
use super::operators::{
    ADD, ARGUMENTS, CHANGED, COMPARE, CONCATENATE, DICT, EQUAL, GREATER, GREATER_OR_EQUAL, IN, ITEM_OF, ITERATE, LESS,
    LESS_OR_EQUAL, LIST, MULTIPLY, NAMED_ARGUMENTS, OTHER_TEMPLATE, SET_ATTRIBUTE, SLICE, TUPLE, UNEQUAL, UNPACK,
};

/// Parameters of a macro, which are copied whenever it is defined or called.
const MOST_PARAMETERS: usize = 255;

/// Instructions as they are written, one after the other.
struct Rewritten<'s> {
    instructions: Instructions<'s>,
    len: u32,
    line: u16,
}

impl<'s> Rewritten<'s> {
    fn push(&mut self, instruction: Instruction<'s>) {
        self.instructions.add_with_line(instruction, self.line);
        self.len += 1;
    }

    /// A call with what lies on top of the stack.
    fn call(&mut self, name: &'static str, n_arguments: usize) -> Result<(), Error> {
        match u16::try_from(n_arguments) {
            Ok(n_arguments) => self.push(Instruction::CallFunction(name, Some(n_arguments))),
            Err(_) => {
                return Err(refused(format!("a list or a call has {n_arguments} items, wanted at most {}", u16::MAX)));
            }
        }
        Ok(())
    }
}

/// The checked form of a template's or a block's instructions.
pub(super) fn checked<'s>(plain: &Instructions<'s>) -> Result<Instructions<'s>, Error> {
    let mut rewritten = Rewritten { instructions: Instructions::new(plain.name(), plain.source()), len: 0, line: 0 };
    // Where each instruction begins in the rewritten ones; the last is the end.
    let mut begins = Vec::new();
    let mut previous: Option<&Instruction> = None;
    for at in 0.. {
        let Some(instruction) = plain.get(at) else { break };
        begins.push(rewritten.len);
        rewritten.line = plain.get_line(at).and_then(|line| u16::try_from(line).ok()).unwrap_or(u16::MAX);
        if let (Instruction::BuildMacro(name, ..), Some(Instruction::LoadConst(parameters))) = (instruction, previous)
            && parameters.len().unwrap_or(0) > MOST_PARAMETERS
        {
            return Err(refused(format!("the macro {name:.100} has more than {MOST_PARAMETERS} parameters")));
        }
        rewrite(instruction, &mut rewritten)?;
        previous = Some(instruction);
    }
    begins.push(rewritten.len);
    let mut instructions = rewritten.instructions;
    // Jumps go to what has come of what they went to.
    for at in 0..rewritten.len {
        if let Some(
            Instruction::Iterate(target)
            | Instruction::Jump(target)
            | Instruction::JumpIfFalse(target)
            | Instruction::JumpIfFalseOrPop(target)
            | Instruction::JumpIfTrueOrPop(target)
            | Instruction::BuildMacro(_, target, _),
        ) = instructions.get_mut(at)
        {
            let Some(begin) = begins.get(*target as usize) else {
                return Err(refused("a jump leaves the template"));
            };
            *target = *begin;
        }
    }
    Ok(instructions)
}

fn rewrite<'s>(instruction: &Instruction<'s>, rewritten: &mut Rewritten<'s>) -> Result<(), Error> {
    match instruction {
        Instruction::Add => rewritten.call(ADD, 2)?,
        Instruction::Mul => rewritten.call(MULTIPLY, 2)?,
        Instruction::StringConcat => rewritten.call(CONCATENATE, 2)?,
        Instruction::Eq => rewritten.call(EQUAL, 2)?,
        Instruction::Ne => rewritten.call(UNEQUAL, 2)?,
        Instruction::Lt => rewritten.call(LESS, 2)?,
        Instruction::Lte => rewritten.call(LESS_OR_EQUAL, 2)?,
        Instruction::Gt => rewritten.call(GREATER, 2)?,
        Instruction::Gte => rewritten.call(GREATER_OR_EQUAL, 2)?,
        Instruction::In => rewritten.call(IN, 2)?,
        Instruction::CompareAndPreserve(operator) => {
            // The operator's type has no name outside of minijinja, but its variants have theirs in its debug format.
            let (name, negated) = match format!("{operator:?}").as_str() {
                "Eq" => (EQUAL, false),
                "Ne" => (UNEQUAL, false),
                "Lt" => (LESS, false),
                "Lte" => (LESS_OR_EQUAL, false),
                "Gt" => (GREATER, false),
                "Gte" => (GREATER_OR_EQUAL, false),
                "In" => (IN, false),
                "NotIn" => (IN, true),
                other => return Err(refused(format!("the operator {other} is not supported"))),
            };
            rewritten.push(Instruction::LoadConst(Value::from(name)));
            rewritten.call(COMPARE, 3)?;
            // The right operand stays, and the result lies on it.
            rewritten.push(Instruction::UnpackList(2));
            if negated {
                rewritten.push(Instruction::Not);
            }
        }
        Instruction::Slice => rewritten.call(SLICE, 4)?,
        Instruction::GetItem => rewritten.call(ITEM_OF, 2)?,
        Instruction::BuildList(Some(items)) => rewritten.call(LIST, *items)?,
        Instruction::BuildTuple(Some(items)) => rewritten.call(TUPLE, *items)?,
        Instruction::BuildMap(pairs) => rewritten.call(DICT, pairs.saturating_mul(2))?,
        Instruction::UnpackLists(lists) => {
            rewritten.call(ARGUMENTS, *lists)?;
            rewritten.push(Instruction::UnpackLists(1));
        }
        Instruction::MergeKwargs(dicts) => {
            rewritten.call(NAMED_ARGUMENTS, *dicts)?;
            rewritten.push(Instruction::MergeKwargs(1));
        }
        // What is walked over is on top of the stack.
        Instruction::UnpackList(_) => {
            rewritten.call(UNPACK, 1)?;
            rewritten.push(instruction.clone());
        }
        Instruction::PushLoop(_) | Instruction::FastRecurse | Instruction::CallFunction("loop", Some(1)) => {
            rewritten.call(ITERATE, 1)?;
            rewritten.push(instruction.clone());
        }
        // `loop.changed(values)` compares them with those of the last time.
        Instruction::CallMethod("changed", Some(values)) if *values > 1 => {
            rewritten.call(CHANGED, usize::from(*values) - 1)?;
            rewritten.push(Instruction::CallMethod("changed", Some(2)));
        }
        Instruction::SetAttr(name) => {
            rewritten.push(Instruction::LoadConst(Value::from(*name)));
            rewritten.call(SET_ATTRIBUTE, 3)?;
            rewritten.push(Instruction::DiscardTop);
        }
        // Only what goes through the formatter is counted.
        Instruction::EmitRaw(text) => {
            rewritten.push(Instruction::LoadConst(Value::from_safe_string((*text).to_owned())));
            rewritten.push(Instruction::Emit);
        }
        Instruction::Include(_) | Instruction::LoadBlocks => {
            rewritten.call(OTHER_TEMPLATE, 1)?;
            rewritten.push(Instruction::DiscardTop);
        }
        other => rewritten.push(other.clone()),
    }
    Ok(())
}
