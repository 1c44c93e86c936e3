//! The threads that multiply and attend on the CPU, which JavaScript starts (`team/cpu_team.ts`).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use wasm_bindgen::prelude::*;

use super::thrown::js_message;
use crate::gpu::{Problem, Team, TeamAddress, TeamAttention, TeamFeedForward, TeamMatrix};

#[wasm_bindgen]
extern "C" {
    /// `CpuTeam`. What a call returns is null, or what is wrong. `at` is a `TeamAddress`, of which a number of JavaScript holds all that there are.
    pub type JsTeam;
    #[wasm_bindgen(method, catch)]
    fn allocate(this: &JsTeam, bytes: usize) -> Result<f64, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn release(this: &JsTeam, at: f64, bytes: usize) -> Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn write(this: &JsTeam, at: f64, bytes: &[u8]) -> Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn read(this: &JsTeam, at: f64, bytes: &mut [u8]) -> Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn pack(
        this: &JsTeam,
        at: f64,
        gguf_type: u32,
        rows: usize,
        columns: usize,
        first: usize,
        count: usize,
        file: &[u8],
    ) -> Result<Option<String>, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn multiply(
        this: &JsTeam,
        at: f64,
        gguf_type: u32,
        is_packed: bool,
        rows: usize,
        columns: usize,
        first: usize,
        end: usize,
        x: &[f32],
        out: &mut [f32],
    ) -> Result<Option<String>, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn attend(
        this: &JsTeam,
        words: &[u32],
        q: &[f32],
        keys: &[u8],
        values: &[u8],
        numbers: &[f32],
        keys_at: f64,
        values_at: f64,
        sums: &mut [f32],
        totals: &mut [f32],
    ) -> Result<Option<String>, JsValue>;
    #[wasm_bindgen(method, catch, js_name = feedForward)]
    fn feed_forward(
        this: &JsTeam,
        at: f64,
        words: &[u32],
        x: &[f32],
        bias: &[f32],
        out: &mut [f32],
    ) -> Result<Option<String>, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn row(
        this: &JsTeam,
        at: f64,
        gguf_type: u32,
        is_packed: bool,
        rows: usize,
        columns: usize,
        row: usize,
        out: &mut [f32],
    ) -> Result<Option<String>, JsValue>;
    #[wasm_bindgen(method)]
    fn threads(this: &JsTeam) -> usize;
    #[wasm_bindgen(method, js_name = mostBytes)]
    fn most_bytes(this: &JsTeam) -> f64;
}

/// The threads that the options of a load hold, if there are any.
pub fn team_of(options: &JsValue) -> Option<Arc<dyn Team>> {
    let team = js_sys::Reflect::get(options, &"team".into()).ok().filter(JsValue::is_object)?;
    Some(Arc::new(team.unchecked_into::<JsTeam>()))
}

impl fmt::Debug for JsTeam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsTeam")
    }
}

/// `NO_ROOM` of `team/cpu_team.ts`.
const NO_ROOM: &str = "there is no room for activations";

fn done(called: Result<Option<String>, JsValue>) -> Result<(), Problem> {
    match called {
        Ok(None) => Ok(()),
        Ok(Some(problem)) if problem == NO_ROOM => Err(Problem::NoRoom(problem)),
        Ok(Some(problem)) => Err(Problem::Invalid(problem)),
        Err(thrown) => Err(Problem::Invalid(js_message(&thrown))),
    }
}

impl Team for JsTeam {
    fn allocate(&self, bytes: usize) -> Option<TeamAddress> {
        self.allocate(bytes).ok().map(|at| at as TeamAddress).filter(|at| *at > 0)
    }

    fn release(&self, at: TeamAddress, bytes: usize) {
        // What is broken gives nothing back.
        let _ = self.release(at as f64, bytes);
    }

    fn write(&self, at: TeamAddress, bytes: &[u8]) -> Result<(), Problem> {
        done(self.write(at as f64, bytes).map(|()| None))
    }

    fn read(&self, at: TeamAddress, bytes: &mut [u8]) -> Result<(), Problem> {
        done(self.read(at as f64, bytes).map(|()| None))
    }

    fn pack(&self, matrix: TeamMatrix, first: usize, count: usize, file: &[u8]) -> Result<(), Problem> {
        let TeamMatrix { at, gguf_type, rows, columns, .. } = matrix;
        done(self.pack(at as f64, gguf_type, rows, columns, first, count, file))
    }

    fn multiply(&self, matrix: TeamMatrix, range: Range<usize>, x: &[f32], out: &mut [f32]) -> Result<(), Problem> {
        let TeamMatrix { at, gguf_type, is_packed, rows, columns } = matrix;
        done(self.multiply(at as f64, gguf_type, is_packed, rows, columns, range.start, range.end, x, out))
    }

    fn attend(&self, attention: TeamAttention<'_>, sums: &mut [f32], totals: &mut [f32]) -> Result<(), Problem> {
        let TeamAttention { words, q, keys, values, numbers, places } = attention;
        let [keys_at, values_at] = places.map(|at| at as f64);
        done(self.attend(words, q, keys, values, numbers, keys_at, values_at, sums, totals))
    }

    fn feed_forward(&self, feed_forward: TeamFeedForward<'_>, out: &mut [f32]) -> Result<(), Problem> {
        let TeamFeedForward { x, bias, up, .. } = feed_forward;
        let Some(words) = feed_forward.words() else {
            return Err(Problem::Invalid("a number of a feed-forward has more than 32 bits".to_owned()));
        };
        done(self.feed_forward(up.at as f64, &words, x, bias, out))
    }

    fn row(&self, matrix: TeamMatrix, row: usize, out: &mut [f32]) -> Result<(), Problem> {
        let TeamMatrix { at, gguf_type, is_packed, rows, columns } = matrix;
        done(self.row(at as f64, gguf_type, is_packed, rows, columns, row, out))
    }

    fn threads(&self) -> usize {
        self.threads()
    }

    fn most_bytes(&self) -> u64 {
        self.most_bytes() as u64
    }
}
