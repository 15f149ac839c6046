//! A bar for people while something long is under way: on a terminal, and only
//! under our own name. Nothing for scripts.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::call::Call;

/// How often a bar moves although nothing has come.
const TICK: Duration = Duration::from_millis(200);

/// A bar over bytes whose number is not known yet; it is on standard error,
/// and hidden if that is no terminal.
pub fn bytes(call: &Call, what: &str) -> ProgressBar {
    bar(call, what, "{msg:<12} {bar:32} {decimal_bytes:>10} of {decimal_total_bytes:<10} {eta}")
}

/// A bar over keys whose number is not known yet.
pub fn keys(call: &Call, what: &str) -> ProgressBar {
    bar(call, what, KEYS)
}

/// A line that says what is waited for.
pub fn spinner(call: &Call) -> ProgressBar {
    bar(call, "", "{spinner} {wide_msg}")
}

/// From now on there is no end: only what has been done is counted.
pub fn endless(bar: &ProgressBar, what: &str) {
    bar.set_style(style("{msg:<12} {spinner} {human_pos} keys written"));
    bar.set_message(what.to_owned());
}

const KEYS: &str = "{msg:<12} {bar:32} {human_pos:>10} of {human_len:<10} {eta}";

fn bar(call: &Call, what: &str, template: &str) -> ProgressBar {
    if !call.is_ours() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length().with_style(style(template)).with_message(what.to_owned());
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is written here")
}
