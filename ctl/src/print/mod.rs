//! What a command has to say, in the form that was asked for.
//!
//! An [`Answer`] is written by the command that gives it; the files beside
//! this one hold what the answers of one form have in common.

pub mod fields;
pub mod json;
pub mod look;
pub mod protobuf;
pub mod simple;
pub mod table;
pub mod yaml;

pub use cobra::go::quote_bytes as quote;

use crate::exit::{BAD_FEATURE, Failure, Outcome};

/// The forms of `--write-out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines for people and for `cut`.
    Simple,
    /// One JSON object per answer.
    Json,
    /// `"Name" : value` lines.
    Fields,
    /// A frame with columns.
    Table,
    /// The bytes of the response message.
    Protobuf,
    /// As JSON, with text in the place of base64. Only `kvorum ctl` has it.
    Yaml,
}

impl Format {
    /// The form with this name, for the stock tool or for ours.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(name: &str, ours: bool) -> Outcome<Format> {
        Ok(match name {
            "simple" => Format::Simple,
            "json" => Format::Json,
            "fields" => Format::Fields,
            "table" => Format::Table,
            "protobuf" => Format::Protobuf,
            "yaml" if ours => Format::Yaml,
            _ => return Err(Failure::new(BAD_FEATURE, "unsupported output format")),
        })
    }
}

/// What a form writes into.
#[derive(Debug, Default)]
pub struct Out {
    /// Goes to standard output.
    pub bytes: Vec<u8>,
    /// `--hex`.
    pub hex: bool,
    /// What people see.
    pub look: look::Look,
}

impl Out {
    /// Text and a line end.
    pub fn line(&mut self, text: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(text.as_ref());
        self.bytes.push(b'\n');
    }
}

/// Something to be printed. A form that the stock tool does not have for it
/// is left as it is.
pub trait Answer {
    /// Lines for people.
    ///
    /// # Errors
    /// If there is no such form.
    fn simple(&self, out: &mut Out) -> Outcome;

    /// `"Name" : value`.
    ///
    /// # Errors
    /// If there is no such form.
    fn fields(&self, _out: &mut Out) -> Outcome {
        Err(unsupported("fields"))
    }

    /// A frame.
    ///
    /// # Errors
    /// If there is no such form.
    fn table(&self, _out: &mut Out) -> Outcome {
        Err(unsupported("table"))
    }

    /// One JSON text, without a line end.
    ///
    /// # Errors
    /// If there is no such form.
    fn json(&self, hex: bool) -> Outcome<String>;

    /// The bytes of the message.
    ///
    /// # Errors
    /// If there is no such form.
    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Err(unsupported("protobuf"))
    }
}

/// The failure for a form that an answer does not have.
pub fn unsupported(format: &str) -> Failure {
    Failure::new(BAD_FEATURE, format!("{format} not supported as output format"))
}

/// Prints answers in one form.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    /// Which.
    pub format: Format,
    /// `--hex`.
    pub hex: bool,
    /// What people see.
    pub look: look::Look,
}

impl Printer {
    /// Prints an answer on standard output.
    ///
    /// # Errors
    /// If the answer has no such form, or standard output is closed.
    pub fn print(&self, answer: &(impl Answer + ?Sized)) -> Outcome {
        crate::write(&self.render(answer)?)
    }

    /// The bytes that [`Printer::print`] writes.
    ///
    /// # Errors
    /// If the answer has no such form.
    pub fn render(&self, answer: &(impl Answer + ?Sized)) -> Outcome<Vec<u8>> {
        let mut out = Out { bytes: Vec::new(), hex: self.hex, look: self.look };
        match self.format {
            Format::Simple => answer.simple(&mut out)?,
            Format::Fields => answer.fields(&mut out)?,
            Format::Table => answer.table(&mut out)?,
            Format::Json => out.line(answer.json(self.hex)?),
            Format::Protobuf => out.bytes = answer.protobuf()?,
            Format::Yaml => out.bytes.extend_from_slice(yaml::document(|| answer.json(self.hex))?.as_bytes()),
        }
        Ok(out.bytes)
    }
}

/// Bytes as `\x66\x6f`.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("\\x{b:02x}")).collect()
}
