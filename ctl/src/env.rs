//! `ETCDCTL_*`: every flag of the program can come from the environment, once.

use cobra::{Flag, Values};

use crate::{
    exit::{ERROR, Failure, Outcome},
    log,
};

const PREFIX: &str = "ETCDCTL_";

/// The variable of a flag.
pub fn variable(flag: &Flag) -> String {
    format!("{PREFIX}{}", flag.name.to_uppercase().replace('-', "_"))
}

/// Fills in what the command line does not say, and speaks about variables
/// that nobody reads.
///
/// # Errors
/// If a variable and a flag say the same thing.
pub fn apply(
    flags: &'static [Flag],
    values: &mut Values,
    variables: impl Iterator<Item = (String, String)>,
) -> Outcome {
    let variables: Vec<(String, String)> = variables.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    let typed: Vec<String> = flags.iter().filter(|f| values.changed(f.name)).map(variable).collect();
    let mut used = Vec::new();
    for flag in flags {
        let name = variable(flag);
        if typed.contains(&name) {
            continue;
        }
        let Some((_, value)) = variables.iter().find(|(n, v)| *n == name && !v.is_empty()) else { continue };
        used.push(name);
        // A value that is none is passed over, as the stock tool does it.
        if flag.check(value).is_ok() {
            values.set(flag, value.clone());
        }
    }
    for (name, value) in &variables {
        if used.contains(name) {
            continue;
        }
        if typed.contains(name) {
            let text = "conflicting environment variable is shadowed by corresponding command-line flag \
                        (either unset environment variable or disable flag))";
            log::line("fatal", "flags/flag.go:86", text, &[("environment-variable", name)]);
            return Err(Failure::Silent(ERROR));
        }
        let both = format!("{name}={value}");
        log::line("warn", "flags/flag.go:94", "unrecognized environment variable", &[("environment-variable", &both)]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::GLOBAL;

    fn with(typed: &[(&str, &str)], variables: &[(&str, &str)]) -> (Outcome, Values) {
        let flag = |name: &str| GLOBAL.iter().find(|f| f.name == name).expect("a flag");
        let mut values = Values::default();
        typed.iter().for_each(|(name, value)| values.set(flag(name), (*value).to_owned()));
        let variables = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        (apply(GLOBAL, &mut values, variables), values)
    }

    #[test]
    fn variables_fill_in_and_do_not_overrule() {
        let hex = GLOBAL.iter().find(|f| f.name == "hex").expect("a flag");
        let (outcome, values) = with(&[], &[("ETCDCTL_HEX", "true"), ("OTHER", "x")]);
        assert_eq!((outcome, values.last(hex)), (Ok(()), "true"));
        let (outcome, values) = with(&[], &[("ETCDCTL_HEX", "maybe")]);
        assert_eq!((outcome, values.last(hex)), (Ok(()), "false"));
        let (outcome, _) = with(&[("hex", "true")], &[("ETCDCTL_HEX", "true")]);
        assert_eq!(outcome, Err(Failure::Silent(ERROR)));
        let (outcome, _) = with(&[], &[("ETCDCTL_NOBODY", "1")]);
        assert_eq!(outcome, Ok(()));
    }
}
