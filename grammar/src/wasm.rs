//! The same for JavaScript. Errors are thrown as strings.

use js_sys::{Function, Uint32Array};
use wasm_bindgen::prelude::*;

use crate::{Grammars, Matching, Vocabulary, words_of};

#[wasm_bindgen(start)]
fn start() {
    console_error_panic_hook::set_once();
}

/// Grammars for one model.
#[wasm_bindgen]
pub struct WasmGrammars(Grammars);

/// The state of a text in a grammar.
#[wasm_bindgen]
pub struct WasmMatching(Matching);

#[wasm_bindgen]
impl WasmGrammars {
    /// `bytes` are those of all tokens, one after the other, `control` says which are control tokens, and `tokenize` makes ids, a
    /// `Uint32Array`, of a string.
    #[wasm_bindgen(constructor)]
    pub fn new(
        bytes: &[u8],
        lengths: &[u32],
        control: &[u8],
        ends: &[u32],
        tokenize: Function,
    ) -> Result<Self, JsValue> {
        let control: Vec<bool> = control.iter().map(|flag| *flag != 0).collect();
        let words = words_of(bytes, lengths)?;
        let tokenize = move |text: &str| match tokenize.call1(&JsValue::UNDEFINED, &text.into()) {
            Ok(ids) => ids.dyn_into::<Uint32Array>().map(|ids| ids.to_vec()).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        Ok(Self(Grammars::new(&Vocabulary { words, control: &control, ends }, tokenize)?))
    }

    pub fn compile(&self, grammar: &str) -> Result<WasmMatching, JsValue> {
        Ok(WasmMatching(self.0.compile(grammar)?))
    }
}

#[wasm_bindgen]
impl WasmMatching {
    /// How many of the tokens were taken in, whether the text is complete, and then the forced tokens: one `Uint32Array`.
    pub fn advance(&mut self, tokens: &[u32]) -> Result<Vec<u32>, JsValue> {
        let advance = self.0.advance(tokens)?;
        let head = [advance.taken as u32, u32::from(advance.is_complete)];
        Ok([&head[..], &advance.forced].concat())
    }

    /// A copy of the state.
    pub fn fork(&self) -> WasmMatching {
        Self(self.0.clone())
    }

    /// The tokens that may follow, a bit for each, in `words` words.
    pub fn mask(&mut self, words: usize) -> Result<Vec<u32>, JsValue> {
        let mut bits = vec![0; words];
        self.0.mask(&mut bits)?;
        Ok(bits)
    }
}
