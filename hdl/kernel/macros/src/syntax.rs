//! Questions about source that several passes ask.
use quote::ToTokens;
use syn::{Data, DeriveInput, Error, Expr, Field, Fields, Ident, Member, Path, Result, Type};

/// Refuses `source`, at its place.
pub(crate) fn refuse<R>(source: impl ToTokens, message: &str) -> Result<R> {
    Err(Error::new_spanned(source, message))
}

/// The fields of a block.
pub(crate) fn named_fields(input: &DeriveInput) -> Result<Vec<&Field>> {
    match &input.data {
        Data::Struct(data) if matches!(data.fields, Fields::Named(_)) => Ok(data.fields.iter().collect()),
        _ => refuse(&input.ident, "a block is a struct with named fields"),
    }
}

/// Whether an expression names a part of the block, `self.a.b[i]`, as opposed to a value.
pub(crate) fn is_place(expression: &Expr) -> bool {
    match expression {
        Expr::Path(path) => path.path.is_ident("self"),
        Expr::Field(access) => is_place(&access.base),
        Expr::Index(index) => is_place(&index.expr),
        Expr::Paren(inner) => is_place(&inner.expr),
        _ => false,
    }
}

pub(crate) fn is_named(member: &Member, name: &str) -> bool {
    matches!(member, Member::Named(ident) if ident == name)
}

/// The left side of an assignment: `signal.next`, or `signal.next.field.field`.
pub(crate) struct Target<'a> {
    pub(crate) signal: &'a Expr,
    /// Outermost first.
    pub(crate) fields: Vec<&'a Ident>,
}

impl<'a> Target<'a> {
    pub(crate) fn of(left: &'a Expr) -> Option<Self> {
        let mut fields = Vec::new();
        let mut present = left;
        while let Expr::Field(access) = present {
            let Member::Named(name) = &access.member else { return None };
            if name == "next" && is_place(&access.base) {
                fields.reverse();
                return Some(Target { signal: &access.base, fields });
            }
            fields.push(name);
            present = &access.base;
        }
        None
    }
}

/// A constant, enum variant or associated constant, by the convention that their names start in upper case.
///
/// The number of a variant, `Opcode::Send as u64`, is a constant too.
pub(crate) fn constant_name(expression: &Expr) -> Option<String> {
    if let Some(variant) = variant_number(expression) {
        return Some(constant_label(variant));
    }
    let Expr::Path(path) = expression else { return None };
    let last = path.path.segments.last()?;
    is_constant_case(&last.ident).then(|| constant_label(&path.path))
}

pub(crate) fn is_constant_case(name: &Ident) -> bool {
    name.to_string().starts_with(|first: char| first.is_ascii_uppercase())
}

/// `Fsm::Idle`, by its spelling; `limits::DEPTH` is a constant.
pub(crate) fn is_variant(path: &Path) -> bool {
    let name = path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    path.segments.len() > 1 && name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

/// The variant in `Opcode::Send as u64`, with or without parentheses around it.
pub(crate) fn variant_number(expression: &Expr) -> Option<&Path> {
    match expression {
        Expr::Paren(inner) => variant_number(&inner.expr),
        Expr::Group(inner) => variant_number(&inner.expr),
        Expr::Cast(cast) => match &*cast.expr {
            Expr::Path(path) if is_variant(&path.path) => Some(&path.path),
            _ => None,
        },
        _ => None,
    }
}

/// `Fsm::Idle` is called `Fsm_Idle` in Verilog, `opcode::SEND_ONLY` just `SEND_ONLY`.
pub(crate) fn constant_label(path: &Path) -> String {
    let names = path.segments.iter().map(|segment| &segment.ident);
    let labels: Vec<_> =
        names.filter(|name| is_constant_case(name) && *name != "Self").map(Ident::to_string).collect();
    labels.join("_")
}

/// Numbers of the generator, as opposed to hardware.
pub(crate) fn is_generator_type(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => is_primitive(&path.path) && path.path.segments.len() == 1,
        Type::Reference(reference) => {
            is_generator_type(&reference.elem)
                || matches!(&*reference.elem, Type::Path(path) if path.path.is_ident("str"))
        }
        Type::Array(array) => is_generator_type(&array.elem),
        Type::Slice(slice) => is_generator_type(&slice.elem),
        _ => false,
    }
}

/// Whether a path starts with a primitive type: `usize::max`.
pub(crate) fn is_primitive(path: &Path) -> bool {
    const NAMES: [&str; 13] =
        ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "char"];
    path.segments.first().is_some_and(|first| NAMES.iter().any(|name| first.ident == name))
}

/// Whether a part of the block may have this method called while the hardware is generated.
pub(crate) fn is_generator_method(name: &Ident) -> bool {
    const NAMES: [&str; 12] = [
        "len", "is_empty", "iter", "first", "last", "get", "clone", "copied", "is_some", "is_none", "as_ref",
        "index",
    ];
    NAMES.iter().any(|method| name == method)
}
