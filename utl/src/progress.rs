//! A bar for people while something long is read; nothing for scripts.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `total` bytes; silent unless somebody looks.
pub fn bar(people: bool, what: &str, total: u64) -> ProgressBar {
    if !people {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{msg:<32} {bar:32} {decimal_bytes:>10} of {decimal_total_bytes:<10} {eta}")
            .expect("the template is written here");
    ProgressBar::new(total).with_style(style).with_message(what.to_string())
}
