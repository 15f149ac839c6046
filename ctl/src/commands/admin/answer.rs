//! The answer to a command whose response holds no more than a header.

use client::wire::etcdserverpb::ResponseHeader;
use prost::Message;

use crate::{
    exit::Outcome,
    print::{Answer, Out, fields, json, protobuf, unsupported},
};

/// A line for people; header and bytes for the other forms.
pub struct Said<'a, M> {
    /// For people.
    pub line: Vec<u8>,
    /// Of the response.
    pub header: Option<&'a ResponseHeader>,
    /// The response.
    pub message: &'a M,
    /// Whether the form `fields` exists.
    pub fields: bool,
}

impl<'a, M> Said<'a, M> {
    /// An answer of users and roles: it has the form `fields`.
    pub fn new(line: impl Into<Vec<u8>>, header: Option<&'a ResponseHeader>, message: &'a M) -> Said<'a, M> {
        Said { line: line.into(), header, message, fields: true }
    }
}

impl<M: Message> Answer for Said<'_, M> {
    fn simple(&self, out: &mut Out) -> Outcome {
        out.line(&self.line);
        Ok(())
    }

    fn fields(&self, out: &mut Out) -> Outcome {
        if !self.fields {
            return Err(unsupported("fields"));
        }
        fields::header(out, self.header);
        Ok(())
    }

    fn json(&self, _hex: bool) -> Outcome<String> {
        Ok(json::Object::new().header(self.header).finish())
    }

    fn protobuf(&self) -> Outcome<Vec<u8>> {
        Ok(protobuf::bytes(self.message))
    }
}
