//! How the head for multi-token prediction (`mtp.rs`) runs beside its model: every pass shows it its tokens, so that it can draft what follows
//! them at any time.

use super::Transformer;
use super::state::LayerStates;
use crate::error::Result;
use crate::tensor::ops::{Argmax, KeepRows, RecallRow, RmsNorm, RowNorm, SliceRows};
use crate::tensor::{Desc, Tensor};

impl Transformer {
    /// Shows the head the tokens [n] of a pass, and their residual stream x [n, n_embd] after the last layer. Tokens and states are those of
    /// `Transformer::forward`.
    pub(super) fn show_head(
        &self,
        tokens: &Tensor,
        x: &Tensor,
        soa: bool,
        (state, states): (&Tensor, &LayerStates),
    ) -> Result<()> {
        let Some(head) = self.mtp() else { return Ok(()) };
        let (context, n) = (self.context(), tokens.shape().elements());
        let hidden = match (self.output_norm().kind, soa) {
            (RowNorm::Rms { epsilon }, true) => context.run1(&RmsNorm { epsilon }, &[x, self.output_norm().soa()?])?,
            (_, true) => bail!(Internal, "a head that predicts tokens of a model without RMS norms"),
            (_, false) => self.output_norm().run(context, x)?,
        };
        let append = |state: &Tensor, embeddings: &Tensor, hidden: &Tensor| {
            head.append(context, embeddings, hidden, (state, states))
        };
        let kept = states.mtp()?.hidden();
        let (last, before) = self.recalled(states, state)?;
        let embeddings = self.embeddings(tokens)?;
        if n == 1 || state.shape().dims().len() > 1 {
            append(&before, &embeddings, &last)?;
        } else {
            let rows = |x: &Tensor, first: usize, count: usize| context.run1(&SliceRows { first, count }, &[x]);
            // The first token belongs to a position before the pass, whose hidden state was kept.
            append(&before, &rows(&embeddings, 0, 1)?, &last)?;
            append(state, &rows(&embeddings, 1, n - 1)?, &rows(&hidden, 0, n - 1)?)?;
        }
        context.run(&KeepRows { soa }, &[&hidden, state, kept]).map(|_| ())
    }

    /// The hidden state before the position of a state, and the state of that position.
    fn recalled(&self, states: &LayerStates, state: &Tensor) -> Result<(Tensor, Tensor)> {
        let op = RecallRow { columns: self.config().n_embd };
        match <[Tensor; 2]>::try_from(self.context().run(&op, &[states.mtp()?.hidden(), state])?) {
            Ok([row, before]) => Ok((row, before)),
            Err(outputs) => bail!(Internal, "recall_row has {} outputs, not two", outputs.len()),
        }
    }

    /// Records drafts by the head: `tokens` [1 + n] begins with the token at the position of `state` [4], and the tokens that may follow it
    /// are written after it. `further` has the states of the positions from there on, without the last, [4] each. The head's keys and values
    /// are written, and what is not accepted of them is overwritten.
    pub fn draft(&self, tokens: &Tensor, state: &Tensor, further: &[Tensor], states: &LayerStates) -> Result<()> {
        let Some(head) = self.mtp() else { bail!(Internal, "drafts of a model without a head for them") };
        let context = self.context();
        let (mut hidden, before) = self.recalled(states, state)?;
        let mut token = context.empty(Desc::u32(&[1]), "token")?;
        context.copy(tokens, 0..1, &token, 0)?;
        for (number, state) in std::iter::once(&before).chain(further).enumerate() {
            hidden = head.predict(context, &self.embeddings(&token)?, &hidden, (state, states))?;
            let logits = self.logits_of_states(&hidden)?; // [1, vocab_size]
            token = context.run1(&Argmax, &[&logits])?;
            context.copy(&token, 0..1, tokens, 1 + number)?;
        }
        Ok(())
    }
}
