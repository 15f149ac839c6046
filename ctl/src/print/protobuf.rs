//! `-w protobuf`: the bytes of the response, nothing around them.

use prost::Message;

/// The bytes of a message.
pub fn bytes(message: &impl Message) -> Vec<u8> {
    message.encode_to_vec()
}
