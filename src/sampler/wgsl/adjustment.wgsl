// Where in a row of the settings of adjusting stands what; `adjustment.rs` says the same.
const ADJUST_WORDS: u32 = 12u;
const ANSWER_START: u32 = 0u;
const WINDOW: u32 = 1u;
const REPETITION: u32 = 2u;
const FREQUENCY: u32 = 3u;
const PRESENCE: u32 = 4u;
const MIN_TOKENS: u32 = 5u;
const DRY_MULTIPLIER: u32 = 6u;
const DRY_BASE: u32 = 7u;
const DRY_ALLOWED_LENGTH: u32 = 8u;
const DRY_WINDOW: u32 = 9u;
const DRY_LONGEST: u32 = 10u;
// Of a mark: the token stands in the window; it must not come. The rest counts where it stands in the answer.
const IN_WINDOW: u32 = 0x80000000u;
const BANNED: u32 = 0x40000000u;

// Tokens of a text with those that a step takes in; 0 past the end of the history.
fn length_of(position: u32, advance: u32, capacity: u32) -> u32 {
    let length = position + advance;
    return select(length, 0u, length > capacity);
}
