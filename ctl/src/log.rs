//! Lines of the program's log on standard error, in the shape of the stock
//! tool's: one JSON object each.

use jiff::Timestamp;

/// One line.
pub fn line(level: &str, caller: &str, message: &str, fields: &[(&str, &str)]) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let mut object = crate::print::json::Object::new();
    object.text("level", level).text("ts", &now).text("caller", caller).text("msg", message);
    for (name, value) in fields {
        object.text(name, value);
    }
    complain!("{}", object.finish());
}
