//! A writer of small GGUF files for the tests, which can also write what a sound writer never would.

pub const U8: u32 = 0;
pub const I8: u32 = 1;
pub const U16: u32 = 2;
pub const I16: u32 = 3;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32: u32 = 6;
pub const BOOL: u32 = 7;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;
pub const I64: u32 = 11;
pub const F64: u32 = 12;

pub struct Tensor {
    pub name: Vec<u8>,
    pub dims: Vec<u64>,
    pub ty: u32,
    pub data: Vec<u8>,
    /// `None`: right after the tensor before it, aligned.
    pub offset: Option<u64>,
}

/// A file in the making. Fields are public so that a test can break one of them.
pub struct Writer {
    pub magic: [u8; 4],
    pub version: u32,
    pub entries: Vec<(Vec<u8>, u32, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
    pub n_entries: Option<u64>,
    pub n_tensors: Option<u64>,
    pub alignment: u64,
}

pub fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

pub fn array(ty: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = ty.to_le_bytes().to_vec();
    bytes.extend((elements.len() as u64).to_le_bytes());
    bytes.extend(elements.concat());
    bytes
}

pub fn strings(texts: &[&str]) -> Vec<u8> {
    array(STRING, &texts.iter().map(string).collect::<Vec<_>>())
}

impl Writer {
    pub fn new() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            entries: Vec::new(),
            tensors: Vec::new(),
            n_entries: None,
            n_tensors: None,
            alignment: 32,
        }
    }

    pub fn entry(mut self, key: &str, ty: u32, value: impl AsRef<[u8]>) -> Self {
        self.entries.push((key.into(), ty, value.as_ref().to_vec()));
        self
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, U32, value.to_le_bytes())
    }

    pub fn f32(self, key: &str, value: f32) -> Self {
        self.entry(key, F32, value.to_le_bytes())
    }

    pub fn str(self, key: &str, value: &str) -> Self {
        self.entry(key, STRING, string(value))
    }

    /// Drops the entry if it is there.
    pub fn without(mut self, key: &str) -> Self {
        self.entries.retain(|entry| entry.0 != key.as_bytes());
        self
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], ty: u32, data: Vec<u8>) -> Self {
        self.tensors.push(Tensor { name: name.into(), dims: dims.to_vec(), ty, data, offset: None });
        self
    }

    pub fn f32_tensor(self, name: &str, dims: &[u64]) -> Self {
        let bytes = dims.iter().product::<u64>() as usize * 4;
        self.tensor(name, dims, 0, vec![0; bytes])
    }

    pub fn tensor_mut(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name.as_bytes()).unwrap()
    }

    /// The header alone, and the whole file.
    pub fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        let mut header = self.magic.to_vec();
        header.extend(self.version.to_le_bytes());
        header.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        header.extend(self.n_entries.unwrap_or(self.entries.len() as u64).to_le_bytes());
        for (key, ty, value) in &self.entries {
            header.extend(string(key));
            header.extend(ty.to_le_bytes());
            header.extend(value);
        }
        let mut data: Vec<u8> = Vec::new();
        for tensor in &self.tensors {
            data.resize((data.len() as u64).next_multiple_of(self.alignment) as usize, 0);
            header.extend(string(&tensor.name));
            header.extend((tensor.dims.len() as u32).to_le_bytes());
            header.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            header.extend(tensor.ty.to_le_bytes());
            header.extend(tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&tensor.data);
        }
        let mut file = header.clone();
        file.resize((file.len() as u64).next_multiple_of(self.alignment) as usize, 0);
        file.extend(data);
        (header, file)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.parts().1
    }
}

/// A Llama that is sound in every respect, with layers too small to be of use.
pub fn llama() -> Writer {
    decoder("llama", &[]).u32("llama.rope.dimension_count", 4)
}

/// A Qwen2 of the same size.
pub fn qwen2() -> Writer {
    decoder("qwen2", &[("attn_q", 16), ("attn_k", 8), ("attn_v", 8)])
}

fn decoder(arch: &str, biases: &[(&str, u64)]) -> Writer {
    let key = |name: &str| format!("{arch}.{name}");
    let mut writer = Writer::new()
        .str("general.architecture", arch)
        .u32(&key("block_count"), 2)
        .u32(&key("embedding_length"), 16)
        .u32(&key("feed_forward_length"), 24)
        .u32(&key("attention.head_count"), 4)
        .u32(&key("attention.head_count_kv"), 2)
        .u32(&key("context_length"), 128)
        .f32(&key("rope.freq_base"), 500000.0)
        .f32(&key("attention.layer_norm_rms_epsilon"), 1e-5)
        .entry("tokenizer.ggml.tokens", ARRAY, strings(&["a", "b", "c", "d", "e"]))
        .f32_tensor("token_embd.weight", &[16, 5])
        .f32_tensor("output_norm.weight", &[16]);
    for layer in 0..2 {
        for (name, dims) in [
            ("attn_norm", &[16][..]),
            ("attn_q", &[16, 16]),
            ("attn_k", &[16, 8]),
            ("attn_v", &[16, 8]),
            ("attn_output", &[16, 16]),
            ("ffn_norm", &[16]),
            ("ffn_gate", &[16, 24]),
            ("ffn_up", &[16, 24]),
            ("ffn_down", &[24, 16]),
        ] {
            writer = writer.f32_tensor(&format!("blk.{layer}.{name}.weight"), dims);
        }
        for (name, length) in biases {
            writer = writer.f32_tensor(&format!("blk.{layer}.{name}.bias"), &[*length]);
        }
    }
    writer
}
