//! Names, order and widths of the fields of a struct, for tests that compare it with a table.
use rnic_kernel::prelude::*;
use rust_hdl::core::type_descriptor::TypeKind;

/// Returns the names and widths of the fields of a struct, lowest bits first.
pub(crate) fn fields_of<T: Synth>() -> Vec<(String, usize)> {
    let TypeKind::Composite(fields) = T::descriptor().kind else { panic!("a struct is composite") };
    let width = |kind: &TypeKind| match kind {
        TypeKind::Bits(width) => *width,
        other => panic!("no field of a mirror is {other:?}"),
    };
    fields.iter().map(|field| (field.fieldname.clone(), width(&field.kind.kind))).collect()
}
