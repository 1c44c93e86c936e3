//! Unicode's normal forms (UAX #15). The browser has tables of them, so that the package needs none; natively they are the crate's.

/// A normal form.
#[derive(Clone, Copy)]
pub(super) enum NormalForm {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

impl NormalForm {
    /// A text in this form.
    pub(super) fn of(self, text: &str) -> String {
        // The same in all forms.
        if text.is_ascii() { text.to_owned() } else { self.made_of(text) }
    }

    #[cfg(target_arch = "wasm32")]
    fn made_of(self, text: &str) -> String {
        let name = match self {
            Self::Nfc => "NFC",
            Self::Nfd => "NFD",
            Self::Nfkc => "NFKC",
            Self::Nfkd => "NFKD",
        };
        js_sys::JsString::from(text).normalize(name).into()
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn made_of(self, text: &str) -> String {
        let mut text = tokenizers::NormalizedString::from(text);
        match self {
            Self::Nfc => text.nfc(),
            Self::Nfd => text.nfd(),
            Self::Nfkc => text.nfkc(),
            Self::Nfkd => text.nfkd(),
        };
        text.get().to_owned()
    }
}
