//! Texts to one vector each, as many in one pass as fit: for embeddings, and for heads that score or label texts. An encoder takes several
//! texts at a time, a decoder one.

use crate::engine::engine::{Inner, Model};
use crate::error::{Code, Result};
use crate::model::{ClassifierConfig, Encoder, EncoderText, Pooling};
use crate::tensor::{Tensor, ops};
use crate::text::tokenizer::TypedIds;

/// The most tokens of a pass, unless a single text has more: memory for activations grows with them.
const PASS_TOKENS: usize = 512;

/// Which vectors of a text's tokens become its vector.
#[derive(Clone, Copy)]
pub(super) enum Pooled<'a> {
    Embedding(Pooling),
    Head(&'a ClassifierConfig),
}

impl Pooled<'_> {
    fn pooling(self) -> Pooling {
        match self {
            Self::Embedding(pooling) => pooling,
            Self::Head(head) => head.pooling,
        }
    }

    /// The rows that count.
    fn span(self, ids: &[u32]) -> [u32; 2] {
        match self {
            Self::Embedding(pooling) => pooling.span(ids.len()),
            Self::Head(head) => head.span(ids),
        }
    }
}

impl Inner {
    /// The vectors of texts that make one pass, [texts, n_embd], in one tensor or in several.
    pub(super) async fn vectors(&self, texts: &[TypedIds], pooled: Pooled<'_>) -> Result<Vec<Tensor>> {
        let vectors = match &self.model {
            Model::Encoder(encoder) => self.vectors_of_encoder(encoder, texts, pooled).await,
            Model::Decoder(_) => self.vectors_of_decoder(texts, pooled).await,
        };
        vectors.map_err(|error| self.explain(error))
    }

    async fn vectors_of_encoder(
        &self,
        encoder: &Encoder,
        texts: &[TypedIds],
        pooled: Pooled<'_>,
    ) -> Result<Vec<Tensor>> {
        let spans: Vec<[u32; 2]> = texts.iter().map(|text| pooled.span(&text.ids)).collect();
        let texts: Vec<EncoderText<'_>> =
            texts.iter().map(|text| EncoderText { ids: &text.ids, types: &text.types }).collect();
        let device = self.context.device();
        let mut has_freed = false;
        loop {
            let pass = device.attempt("a pass over texts", || encoder.forward(&texts, &spans, pooled.pooling())).await;
            match pass {
                Err(error) if error.code() == Code::OutOfMemory && !has_freed => {
                    has_freed = true;
                    device.free_unused().await?;
                }
                pass => return Ok(vec![pass?]),
            }
        }
    }

    async fn vectors_of_decoder(&self, texts: &[TypedIds], pooled: Pooled<'_>) -> Result<Vec<Tensor>> {
        let mut vectors = Vec::with_capacity(texts.len());
        for TypedIds { ids, .. } in texts {
            let states = self.states(ids).await?;
            vectors.push(pooled.pooling().run(&self.context, &states, &pooled.span(ids))?);
        }
        Ok(vectors)
    }

    /// The states of a decoder up to the input of its head, [n_tokens, n_embd].
    async fn states(&self, ids: &[u32]) -> Result<Tensor> {
        match &self.model {
            Model::Decoder(decoder) => decoder.states(ids, &self.adapter_set(None)?).await,
            Model::Encoder(_) => bail!(Internal, "the states of an encoder, one text at a time"),
        }
    }

    /// The logits of tokens after a text, of a decoder: [1, vocab_size].
    pub(super) async fn logits_after(&self, ids: &[u32]) -> Result<Tensor> {
        let Model::Decoder(decoder) = &self.model else { bail!(Internal, "an encoder has no logits of tokens") };
        let logits = async {
            let states = decoder.states(ids, &self.adapter_set(None)?).await?;
            let last = self.context.run1(&ops::SliceRows { first: ids.len() - 1, count: 1 }, &[&states])?;
            decoder.transformer.logits_of_states(&last)
        };
        logits.await.map_err(|error| self.explain(error))
    }
}

/// Groups the texts by pass: neighbours go together while they fit.
pub(super) fn passes(texts: &[TypedIds]) -> Vec<&[TypedIds]> {
    let mut passes = Vec::new();
    let (mut begin, mut tokens) = (0, 0);
    for (index, text) in texts.iter().enumerate() {
        if index > begin && tokens + text.ids.len() > PASS_TOKENS {
            passes.push(&texts[begin..index]);
            (begin, tokens) = (index, 0);
        }
        tokens += text.ids.len();
    }
    passes.push(&texts[begin..]);
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_hold_whole_texts() {
        let lengths = [500, 12, 1, 600, 3, 509, 1];
        let texts: Vec<TypedIds> = lengths.map(|length| TypedIds::from(vec![0; length])).to_vec();
        let lengths: Vec<Vec<usize>> =
            passes(&texts).iter().map(|pass| pass.iter().map(|text| text.ids.len()).collect()).collect();
        assert_eq!(lengths, [vec![500, 12], vec![1], vec![600], vec![3, 509], vec![1]]);
    }
}
