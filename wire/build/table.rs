//! Writes the table of methods and the shapes of the messages they carry.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt::{self, Write as _},
};

use prost_reflect::{DescriptorPool, EnumDescriptor, Kind, MessageDescriptor, MethodDescriptor};

/// Messages and enums in the order in which they were first met; an index into
/// these is how one refers to another.
#[derive(Default)]
struct Shapes {
    messages: Vec<MessageDescriptor>,
    message_at: BTreeMap<String, usize>,
    enums: Vec<EnumDescriptor>,
    enum_at: BTreeMap<String, usize>,
}

impl Shapes {
    fn message(&mut self, m: MessageDescriptor) -> usize {
        if let Some(at) = self.message_at.get(m.full_name()) {
            return *at;
        }
        let at = self.messages.len();
        self.message_at.insert(m.full_name().to_owned(), at);
        self.messages.push(m.clone());
        for field in m.fields() {
            match field.kind() {
                Kind::Message(inner) => {
                    self.message(inner);
                }
                Kind::Enum(e) => {
                    self.enumeration(e);
                }
                _ => {}
            }
        }
        at
    }

    fn enumeration(&mut self, e: EnumDescriptor) -> usize {
        if let Some(at) = self.enum_at.get(e.full_name()) {
            return *at;
        }
        let at = self.enums.len();
        self.enum_at.insert(e.full_name().to_owned(), at);
        self.enums.push(e);
        at
    }
}

/// The text of `table.rs`.
pub fn write(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let mut shapes = Shapes::default();
    let mut out = String::new();
    methods(pool, &mut shapes, &mut out)?;
    messages(&shapes, &mut out)?;
    enums(&shapes, &mut out)?;
    Ok(out)
}

fn methods(pool: &DescriptorPool, shapes: &mut Shapes, out: &mut String) -> Result<(), Box<dyn Error>> {
    let post = pool.get_extension_by_name("gateway.post").ok_or("gateway.post is not defined")?;
    let mut names = Vec::new();
    let mut rows = String::new();
    for service in pool.services() {
        for method in service.methods() {
            let name = rpc_name(&method);
            let options = method.options();
            let json: Vec<String> = options
                .get_extension(&post)
                .as_list()
                .ok_or("gateway.post is not repeated")?
                .iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect();
            // Only what has a JSON path needs shapes: that keeps kinds which
            // the JSON codec does not know, such as maps, out of it.
            let shape = if json.is_empty() {
                "None".to_owned()
            } else {
                let (input, output) = (shapes.message(method.input()), shapes.message(method.output()));
                format!("Some(Shape {{ request: {input}, response: {output} }})")
            };
            let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
                (false, false) => "Unary",
                (false, true) => "ServerStream",
                (true, true) => "Bidi",
                (true, false) => {
                    return Err(format!("{name}: client streams are not served").into());
                }
            };
            let path = format!("/{}/{}", service.full_name(), method.name());
            writeln!(
                rows,
                "    Method {{ rpc: Rpc::{name}, path: {path:?}, json: &{json:?}, kind: Kind::{kind}, shape: {shape} }},"
            )?;
            names.push((name, path));
        }
    }
    let distinct: BTreeMap<_, _> = names.iter().cloned().collect();
    if distinct.len() != names.len() {
        return Err("two methods have the same short name".into());
    }
    writeln!(out, "/// Every method, by its short name.")?;
    writeln!(out, "#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\npub enum Rpc {{")?;
    for (name, path) in &names {
        writeln!(out, "    /// `{path}`\n    {name},")?;
    }
    writeln!(out, "}}\n")?;
    writeln!(out, "/// Every method of every service, in the order of [`Rpc`].")?;
    writeln!(out, "pub static METHODS: &[Method] = &[\n{rows}];\n")?;
    Ok(())
}

/// The method's own name; those of the health protocol say so, since `Watch`
/// is taken.
fn rpc_name(method: &MethodDescriptor) -> String {
    match method.parent_service().name() {
        "Health" => format!("Health{}", method.name()),
        _ => method.name().to_owned(),
    }
}

fn messages(shapes: &Shapes, out: &mut String) -> Result<(), Box<dyn Error>> {
    writeln!(out, "pub(crate) static MESSAGES: &[MessageShape] = &[")?;
    for message in &shapes.messages {
        writeln!(out, "    MessageShape {{ fields: &[")?;
        // The order of declaration: JSON is written in it.
        let mut fields: Vec<_> = message.fields().collect();
        let declared = |number: u32| {
            message.descriptor_proto().field.iter().position(|f| f.number == Some(i32::try_from(number).unwrap_or(0)))
        };
        fields.sort_by_key(|f| declared(f.number()));
        for field in fields {
            let name = field.name();
            if field.is_map() {
                return Err(format!("{}: maps are not supported", field.full_name()).into());
            }
            let kind = match field.kind() {
                Kind::Bool => "Bool".to_owned(),
                Kind::Bytes => "Bytes".to_owned(),
                Kind::String => "String".to_owned(),
                Kind::Int64 => "Int64".to_owned(),
                Kind::Uint64 => "Uint64".to_owned(),
                Kind::Uint32 => "Uint32".to_owned(),
                Kind::Enum(e) => format!("Enum({})", shapes.enum_at[e.full_name()]),
                Kind::Message(m) => format!("Message({})", shapes.message_at[m.full_name()]),
                other => {
                    return Err(format!("{}: {other:?} is not supported", field.full_name()).into());
                }
            };
            let oneof = match field.containing_oneof() {
                Some(o) => format!("Some({:?})", o.full_name()),
                None => "None".to_owned(),
            };
            writeln!(
                out,
                "        FieldShape {{ number: {}, name: {name:?}, json: {:?}, kind: FieldKind::{kind}, repeated: {}, oneof: {oneof} }},",
                field.number(),
                field.json_name(),
                field.is_list(),
            )?;
        }
        writeln!(out, "    ] }},")?;
    }
    writeln!(out, "];\n")?;
    Ok(())
}

fn enums(shapes: &Shapes, out: &mut String) -> fmt::Result {
    writeln!(out, "/// Names and numbers.")?;
    writeln!(out, "pub(crate) static ENUMS: &[&[(&str, i32)]] = &[")?;
    for e in &shapes.enums {
        write!(out, "    &[")?;
        for value in e.values() {
            write!(out, "({:?}, {}), ", value.name(), value.number())?;
        }
        writeln!(out, "],")?;
    }
    writeln!(out, "];")
}
