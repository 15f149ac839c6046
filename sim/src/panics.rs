//! A panic of the code under test is a finding, not the end of the campaign.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs `act`; a panic comes back as its message and place.
pub fn guarded<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let guarded = LAST.with(|last| last.borrow().is_some());
            if guarded {
                LAST.with(|last| *last.borrow_mut() = Some(info.to_string().replace('\n', " ")));
            } else {
                before(info);
            }
        }));
    });
    LAST.with(|last| *last.borrow_mut() = Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(act));
    let message = LAST.with(|last| last.borrow_mut().take());
    result.map_err(|_| message.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_text() {
        let text = guarded(|| panic!("assertion: applied {}", 7)).expect_err("panics");
        assert!(text.contains("applied 7") && text.contains("panics.rs"), "{text}");
        assert_eq!(guarded(|| 5), Ok(5));
    }
}
