//! The grammar engine in a page: a second wasm, which `pkg-template/src/grammar.ts` loads on first use. Its objects are called through
//! JavaScript. If they throw a string, it is an error of the grammar; anything else is a fault of the engine.

use std::rc::Rc;

use js_sys::{Promise, Uint8Array, Uint32Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::thrown::js_message;
use crate::engine::grammars::{
    Advance, Constraint, GrammarCompiler, GrammarLoader, GrammarVocabulary, LoadingGrammars,
};
use crate::error::{Code, Error, Result};

#[wasm_bindgen]
extern "C" {
    /// `WasmGrammarLoader` in `pkg-template/src/wasm.ts`.
    pub type JsGrammarLoader;
    #[wasm_bindgen(method, catch)]
    fn load(
        this: &JsGrammarLoader,
        bytes: Uint8Array,
        lengths: Uint32Array,
        control: Uint8Array,
        ends: Uint32Array,
        tokenize: &JsValue,
    ) -> Result<Promise, JsValue>;

    /// `WasmGrammars` of the second wasm.
    type JsGrammars;
    #[wasm_bindgen(method, catch)]
    fn compile(this: &JsGrammars, grammar: &str) -> Result<JsMatching, JsValue>;
    #[wasm_bindgen(method)]
    fn free(this: &JsGrammars);

    /// `WasmMatching` of the second wasm.
    type JsMatching;
    #[wasm_bindgen(method, catch)]
    fn advance(this: &JsMatching, tokens: Uint32Array) -> Result<Uint32Array, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn mask(this: &JsMatching, words: usize) -> Result<Uint32Array, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn fork(this: &JsMatching) -> Result<JsMatching, JsValue>;
    #[wasm_bindgen(method)]
    fn free(this: &JsMatching);
}

pub struct LoadedGrammars(pub JsGrammarLoader);

type JsTokenize = dyn Fn(String) -> Uint32Array;

struct Compiler {
    grammars: JsGrammars,
    /// The callbacks of `grammars`.
    _tokenize: Closure<JsTokenize>,
}

struct Held(JsMatching);

impl GrammarLoader for LoadedGrammars {
    fn load(&self, vocabulary: GrammarVocabulary) -> LoadingGrammars<'_> {
        Box::pin(async move {
            let GrammarVocabulary { bytes, lengths, control, ends, tokenize } = vocabulary;
            let control: Vec<u8> = control.into_iter().map(u8::from).collect();
            let tokenize: Box<JsTokenize> = Box::new(move |text| tokenize(&text)[..].into());
            let tokenize = Closure::wrap(tokenize);
            let loading = self.0.load(
                bytes[..].into(),
                lengths[..].into(),
                control[..].into(),
                ends[..].into(),
                tokenize.as_ref(),
            );
            let grammars = async { JsFuture::from(loading?).await }.await;
            let grammars = grammars.map_err(|thrown| error_of(thrown, Code::UnsupportedTokenizer))?.unchecked_into();
            Ok(Rc::new(Compiler { grammars, _tokenize: tokenize }) as Rc<dyn GrammarCompiler>)
        })
    }
}

impl GrammarCompiler for Compiler {
    fn compile(&self, grammar: &str) -> Result<Box<dyn Constraint>> {
        match self.grammars.compile(grammar) {
            Ok(matching) => Ok(Box::new(Held(matching))),
            Err(thrown) => Err(error_of(thrown, Code::InvalidRequest)),
        }
    }
}

impl Constraint for Held {
    fn advance(&mut self, tokens: &[u32]) -> Result<Advance> {
        let words = self.0.advance(tokens.into()).map_err(followed)?.to_vec();
        match &words[..] {
            [taken, is_complete, forced @ ..] => {
                Ok(Advance { taken: *taken as usize, forced: forced.to_vec(), is_complete: *is_complete != 0 })
            }
            _ => bail!(Internal, "the grammar engine answered with {} words", words.len()),
        }
    }

    fn mask(&mut self, bits: &mut [u32]) -> Result<()> {
        let words = self.0.mask(bits.len()).map_err(followed)?;
        if words.length() as usize != bits.len() {
            bail!(Internal, "a mask of {} words, wanted {}", words.length(), bits.len());
        }
        words.copy_to(bits);
        Ok(())
    }

    fn fork(&self) -> Result<Option<Box<dyn Constraint>>> {
        Ok(Some(Box::new(Self(self.0.fork().map_err(followed)?))))
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        self.grammars.free();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.free();
    }
}

fn followed(thrown: JsValue) -> Error {
    error_of(thrown, Code::InvalidRequest).context("the grammar can't be followed any further")
}

/// A string is an error of the grammar engine; an error with a code is from the package.
fn error_of(thrown: JsValue, code: Code) -> Error {
    if let Some(reason) = thrown.as_string() {
        return Error::new(code, reason);
    }
    let own = js_sys::Reflect::get(&thrown, &"code".into()).ok().and_then(|code| code.as_string());
    match Code::ALL.iter().find(|code| own.as_deref() == Some(code.as_str())) {
        Some(code) => Error::new(*code, js_message(&thrown)),
        None => err!(
            Internal,
            "the grammar engine stopped: {}; load the model again without it, or reload the page",
            js_message(&thrown)
        ),
    }
}
