//! Gives the grammar engine's wasm a larger stack: it recurses over the rules that refer to each other.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("wasm32") {
        println!("cargo::rustc-link-arg-cdylib=-zstack-size={}", 2 << 20);
    }
}
