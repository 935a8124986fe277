//! Rewrites a kernel body so that it records hardware instead of computing values.
//!
//! Only what Rust does not let us overload is rewritten: control flow, comparisons, `&&` and `||`, reads (`.val()`),
//! writes (`.next =`), fields of values, struct literals, calls and names. Everything else stays as it is and is
//! typed by rustc: operators are overloaded on nodes, and what the generator computes (loop variables, constants,
//! const generics) is computed as usual when the staged copy runs.
//!
//! Whatever is not rewritten must not read a signal without the recorder, for it would find the value that the
//! signal happens to have during generation. Therefore every expression is looked into, and the methods that
//! may be called on parts of the block are a short list.
use crate::syntax::{
    constant_label, constant_name, is_constant_case, is_generator_type, is_named, is_place, is_primitive,
    refuse,
};
use crate::{comments, syntax, update};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, BinOp, Block, Expr, ExprAssign, ExprBinary, ExprCall, ExprField, ExprIf, ExprMacro, ExprMatch,
    ExprMethodCall, ExprStruct, Ident, Lit, Local, Member, Pat, PatRange, PatStruct, Path, PathArguments,
    RangeLimits, Result, Stmt, Token, Type, UnOp,
};

// ---- statements ------------------------------------------------------------------------------------------

/// A block that is run for its effects.
pub(crate) fn statements(block: &Block) -> Result<TokenStream> {
    block.stmts.iter().map(statement).collect()
}

/// A block that is run for its value.
pub(crate) fn value_block(block: &Block) -> Result<TokenStream> {
    let Some((Stmt::Expr(last, None), before)) = block.stmts.split_last() else {
        return refuse(block, "this block must end in a value");
    };
    let before: TokenStream = before.iter().map(statement).collect::<Result<_>>()?;
    let mark = comments::mark(last);
    let value = branch_value(last)?;
    Ok(quote!({ #before #mark #value }))
}

fn statement(statement: &Stmt) -> Result<TokenStream> {
    statement_below(&[], statement)
}

/// A statement with more comments above it than its own.
fn statement_below(above: &[String], statement: &Stmt) -> Result<TokenStream> {
    let staged = match statement {
        Stmt::Local(local) => {
            check_attributes(&local.attrs)?;
            binding(local)?
        }
        Stmt::Expr(expression, _) => effect(expression)?,
        Stmt::Macro(call) => {
            check_attributes(&call.attrs)?;
            macro_statement(&call.mac)?
        }
        Stmt::Item(item) => return Ok(quote!(#item)),
    };
    let mark = comments::mark_below(above, statement);
    Ok(quote!(#mark #staged))
}

/// The staged copy would not honour `#[cfg]` and the like.
fn check_attributes(attributes: &[Attribute]) -> Result<()> {
    let is_harmless = |attribute: &&Attribute| {
        ["doc", "allow", "expect", "rustfmt"]
            .iter()
            .any(|name| attribute.path().segments.first().is_some_and(|first| first.ident == name))
    };
    match attributes.iter().find(|attribute| !is_harmless(attribute)) {
        Some(other) => refuse(other, "this attribute has no meaning in a kernel"),
        None => Ok(()),
    }
}

fn binding(local: &Local) -> Result<TokenStream> {
    let Some(init) = &local.init else {
        return refuse(local, "a `let` in a kernel needs a value");
    };
    if let Some((_, diverge)) = &init.diverge {
        return refuse(diverge, "`let ... else` has no meaning in hardware");
    }
    let (pattern, ty) = match &local.pat {
        Pat::Type(typed) => {
            let ty = node_type(&typed.ty);
            (&*typed.pat, Some(quote!(: #ty)))
        }
        pattern => (pattern, None),
    };
    let value = constant_or_value(&init.expr)?;
    if let Pat::Struct(pattern) = pattern {
        return struct_binding(pattern, &value);
    }
    let names = bound_names(pattern)?;
    let labels = names.iter().map(|name| name.unraw().to_string());
    Ok(quote! {
        let #pattern #ty = #value;
        #(let #names = ::rnic_kernel::staged::Bind::bind(#names, #labels);)*
    })
}

/// `let Pair { high, low: other } = value;`
fn struct_binding(pattern: &PatStruct, value: &TokenStream) -> Result<TokenStream> {
    let whole = hygienic("whole");
    let fields = pattern.fields.iter().map(|field| {
        let Member::Named(member) = &field.member else {
            return refuse(&field.member, "a hardware struct has named fields");
        };
        let name = match &*field.pat {
            Pat::Ident(name) if name.mutability.is_none() && name.subpat.is_none() => &name.ident,
            Pat::Wild(_) => return Ok(TokenStream::new()),
            other => return refuse(other, "a field is bound to a plain name"),
        };
        let (get, offset) = field_accessors(&[member]);
        let label = name.unraw().to_string();
        let field = member.unraw().to_string();
        Ok(quote! {
            let #name = ::rnic_kernel::staged::Bind::bind(#whole.project(#field, #get, #offset), #label);
        })
    });
    let fields = fields.collect::<Result<Vec<_>>>()?;
    let label = pattern.path.segments.last().map(|last| last.ident.to_string().to_lowercase());
    Ok(quote! {
        let #whole = ::rnic_kernel::staged::Bind::bind(#value, #label);
        #(#fields)*
    })
}

fn bound_names(pattern: &Pat) -> Result<Vec<Ident>> {
    match pattern {
        Pat::Ident(name) if name.mutability.is_some() => {
            refuse(name, "a kernel has no variables: use another name, or a `Signal<Local, _>`")
        }
        Pat::Ident(name) if name.subpat.is_none() && name.by_ref.is_none() => Ok(vec![name.ident.clone()]),
        Pat::Wild(_) => Ok(Vec::new()),
        Pat::Paren(inner) => bound_names(&inner.pat),
        Pat::Tuple(tuple) => Ok(tuple.elems.iter().map(bound_names).collect::<Result<Vec<_>>>()?.concat()),
        Pat::Slice(slice) => Ok(slice.elems.iter().map(bound_names).collect::<Result<Vec<_>>>()?.concat()),
        other => refuse(other, "a `let` in a kernel binds names, tuples, arrays or the fields of a struct"),
    }
}

fn effect(expression: &Expr) -> Result<TokenStream> {
    match expression {
        Expr::Assign(assignment) => {
            check_attributes(&assignment.attrs)?;
            assign(assignment)
        }
        Expr::If(conditional) => if_statement(conditional),
        Expr::Match(choice) => match_statement(choice),
        Expr::Block(block) if block.label.is_none() => {
            let body = statements(&block.block)?;
            Ok(quote!({ #body }))
        }
        Expr::ForLoop(repeat) => {
            let (pattern, range, body) = (&repeat.pat, value(&repeat.expr)?, statements(&repeat.body)?);
            Ok(quote!(for #pattern in #range { #body }))
        }
        Expr::Call(call) => connection(call),
        Expr::MethodCall(call) if call.method == "hold_registers" => {
            let block = &call.receiver;
            Ok(quote!(::rnic_kernel::register::Registers::stage_registers(#block);))
        }
        Expr::MethodCall(call) if is_place(&call.receiver) => verb(call),
        Expr::Macro(call) => macro_statement(&call.mac),
        Expr::Tuple(unit) if unit.elems.is_empty() => Ok(TokenStream::new()),
        Expr::Paren(inner) => effect(&inner.expr),
        Expr::Binary(operation) if is_compound(&operation.op) => refuse(
            operation,
            "a kernel has no variables to update: write `signal.next = ..` with the whole value",
        ),
        Expr::While(_) | Expr::Loop(_) => {
            refuse(expression, "the number of rounds must be known at generation: use `for` over a range")
        }
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => {
            refuse(expression, "hardware has no early exit: use `if` and `else`")
        }
        other => refuse(other, "this statement has no meaning in hardware"),
    }
}

fn assign(assignment: &ExprAssign) -> Result<TokenStream> {
    let Some(target) = syntax::Target::of(&assignment.left) else {
        return refuse(
            &assignment.left,
            "assign to `self.signal.next`, or to a field of it: `self.signal.next.field`",
        );
    };
    let (signal, right) = (target.signal, constant_or_value(&assignment.right)?);
    let span = assignment.span();
    if target.fields.is_empty() {
        return Ok(quote_spanned!(span=> ::rnic_kernel::staged::assign(&#signal, #right);));
    }
    let (get, offset) = field_accessors(&target.fields);
    Ok(quote_spanned!(span=> ::rnic_kernel::staged::assign_field(&#signal, #get, #offset, #right);))
}

fn if_statement(conditional: &ExprIf) -> Result<TokenStream> {
    let condition = condition(&conditional.cond)?;
    let then = statements(&conditional.then_branch)?;
    let otherwise = match &conditional.else_branch {
        Some((_, otherwise)) => effect(otherwise)?,
        None => TokenStream::new(),
    };
    let span = conditional.cond.span();
    Ok(quote_spanned!(span=> ::rnic_kernel::staged::branch(#condition, || { #then }, || { #otherwise });))
}

fn condition(expression: &Expr) -> Result<TokenStream> {
    match expression {
        Expr::Let(binding) => refuse(binding, "`if let` has no meaning in hardware: use `match`"),
        other => value(other),
    }
}

/// `self.part.verb(..);`, a method that is a kernel.
fn verb(call: &ExprMethodCall) -> Result<TokenStream> {
    let (receiver, (_, staged)) = (value(&call.receiver)?, update::twins(&call.method));
    let arguments = call.args.iter().map(constant_or_value).collect::<Result<Vec<_>>>()?;
    Ok(quote_spanned!(call.span()=>
        #receiver.#staged(#(::rnic_kernel::node::IntoNode::into_node(#arguments)),*);))
}

/// `Type::link(&mut a, &mut b)` and `Type::join(&mut a, &mut b)`.
fn connection(call: &ExprCall) -> Result<TokenStream> {
    let name = match &*call.func {
        Expr::Path(path) => path.path.segments.last().map(|last| &last.ident),
        _ => None,
    };
    let Some(name) = name.filter(|name| *name == "link" || *name == "join") else {
        return refuse(call, "a call that stands alone is `Type::link(..)` or `Type::join(..)`");
    };
    let places = call.args.iter().map(|argument| match argument {
        Expr::Reference(reference) if is_place(&reference.expr) => Ok(&reference.expr),
        other => refuse(other, "expected `&mut self.port`"),
    });
    let places = places.collect::<Result<Vec<_>>>()?;
    Ok(quote!(::rnic_kernel::staged::#name(#(&#places),*);))
}

/// The arguments of `clock!(self, clock, child, ..)`.
pub(crate) struct Clocks {
    pub(crate) block: Ident,
    pub(crate) clock: Ident,
    pub(crate) children: Vec<Ident>,
}

impl Parse for Clocks {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let names = Punctuated::<Ident, Token![,]>::parse_terminated_with(input, Ident::parse_any)?;
        let mut names = names.into_iter();
        match (names.next(), names.next()) {
            (Some(block), Some(clock)) => Ok(Clocks { block, clock, children: names.collect() }),
            _ => Err(input.error("expected `clock!(self, clock, child, ..)`")),
        }
    }
}

fn macro_statement(call: &syn::Macro) -> Result<TokenStream> {
    if call.path.segments.last().is_none_or(|last| last.ident != "clock") {
        return refuse(call, "a kernel may use the macros `clock!` and `cat!` only");
    }
    let Clocks { block, clock, children } = call.parse_body()?;
    Ok(quote!(#(::rnic_kernel::staged::assign(&#block.#children.clock, #block.#clock.staged_val());)*))
}

// ---- values ----------------------------------------------------------------------------------------------

fn value(expression: &Expr) -> Result<TokenStream> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Float(_) => refuse(literal, "hardware has no floating point"),
            _ => Ok(quote!(#literal)),
        },
        Expr::Path(path) => Ok(quote!(#path)),
        Expr::Const(block) => Ok(quote!(#block)),
        // What the generator computes as Rust does; see `hardware`.
        Expr::Verbatim(native) => Ok(native.clone()),
        Expr::Paren(inner) => {
            let inner = value(&inner.expr)?;
            Ok(quote!((#inner)))
        }
        Expr::Group(inner) => value(&inner.expr),
        Expr::Block(block) if block.label.is_none() => value_block(&block.block),
        Expr::Tuple(tuple) => {
            let elements = values(&tuple.elems)?;
            Ok(quote!((#(#elements,)*)))
        }
        Expr::Array(array) => {
            // An array of numbers alone belongs to the generator; among hardware, constants become nodes.
            let is_constant = |element: &Expr| match element {
                Expr::Path(path) => constant_name(element).is_some() && !syntax::is_variant(&path.path),
                other => matches!(other, Expr::Lit(_)),
            };
            let elements = if array.elems.iter().all(is_constant) {
                values(&array.elems)?
            } else {
                array.elems.iter().map(branch_value).collect::<Result<Vec<_>>>()?
            };
            Ok(quote!([#(#elements),*]))
        }
        Expr::Repeat(array) => {
            let (element, length) = (value(&array.expr)?, &array.len);
            Ok(quote!([#element; #length]))
        }
        Expr::Index(access) => {
            let (base, index) = (value(&access.expr)?, value(&access.index)?);
            Ok(quote_spanned!(access.span()=> #base[#index]))
        }
        Expr::Range(range) => {
            let start = range.start.as_deref().map(value).transpose()?;
            let end = range.end.as_deref().map(value).transpose()?;
            let limits = &range.limits;
            Ok(quote!((#start #limits #end)))
        }
        Expr::Cast(cast) => {
            let (inner, ty) = (value(&cast.expr)?, &cast.ty);
            Ok(quote_spanned!(cast.span()=> (#inner as #ty)))
        }
        Expr::Reference(reference) if reference.mutability.is_none() => {
            let inner = value(&reference.expr)?;
            Ok(quote!(&#inner))
        }
        Expr::Unary(unary) => match unary.op {
            UnOp::Not(_) | UnOp::Deref(_) => {
                let (op, inner) = (&unary.op, value(&unary.expr)?);
                Ok(quote_spanned!(unary.span()=> (#op #inner)))
            }
            _ => refuse(unary, "a kernel has unsigned values only"),
        },
        Expr::Binary(operation) => binary(operation),
        Expr::Field(access) => field(access),
        Expr::MethodCall(call) => method(call),
        Expr::Call(call) => function(call),
        Expr::Macro(call) => macro_value(call),
        Expr::Struct(literal) => struct_literal(literal),
        Expr::If(conditional) => if_value(conditional),
        Expr::Match(choice) => match_value(choice),
        Expr::Closure(closure) => refuse(closure, "a kernel has no closures: use a `#[kernel]` function"),
        other => refuse(other, "this expression has no meaning in hardware"),
    }
}

fn values<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> Result<Vec<TokenStream>> {
    expressions.into_iter().map(value).collect()
}

/// A value in a place where hardware is meant; a Rust constant becomes a literal with its name.
fn constant_or_value(expression: &Expr) -> Result<TokenStream> {
    match constant_name(expression) {
        Some(name) => Ok(quote_spanned!(expression.span()=>
            ::rnic_kernel::staged::named(#name, || ::rnic_kernel::staged::lift(#expression)))),
        None => value(expression),
    }
}

/// The value of a branch; constants in it become nodes, to meet those of the other branches.
fn branch_value(expression: &Expr) -> Result<TokenStream> {
    match expression {
        Expr::Lit(literal) if matches!(literal.lit, Lit::Bool(_)) => {
            Ok(quote!(::rnic_kernel::staged::lift(#literal)))
        }
        Expr::Paren(inner) => branch_value(&inner.expr),
        Expr::Group(inner) => branch_value(&inner.expr),
        Expr::Tuple(tuple) => {
            let elements = tuple.elems.iter().map(branch_value).collect::<Result<Vec<_>>>()?;
            Ok(quote!((#(#elements,)*)))
        }
        Expr::Array(array) => {
            let elements = array.elems.iter().map(branch_value).collect::<Result<Vec<_>>>()?;
            Ok(quote!([#(#elements),*]))
        }
        other if constant_name(other).is_some() => constant_or_value(other),
        Expr::Path(_) | Expr::Index(_) | Expr::Field(_) => {
            let value = value(expression)?;
            Ok(quote!(::rnic_kernel::staged::lift(#value)))
        }
        other => value(other),
    }
}

fn binary(operation: &ExprBinary) -> Result<TokenStream> {
    let span = operation.span();
    if is_compound(&operation.op) {
        return refuse(operation, "a kernel has no variables to update");
    }
    let left = value(&operation.left)?;
    let right = value(&operation.right)?;
    let name = constant_name(&operation.right);
    let comparison = match &operation.op {
        BinOp::And(_) => {
            return Ok(quote_spanned!(span=> ::rnic_kernel::staged::ShortCircuit::and(#left, || #right)));
        }
        BinOp::Or(_) => {
            return Ok(quote_spanned!(span=> ::rnic_kernel::staged::ShortCircuit::or(#left, || #right)));
        }
        BinOp::Eq(_) => "Eq",
        BinOp::Ne(_) => "Ne",
        BinOp::Lt(_) => "Lt",
        BinOp::Le(_) => "Le",
        BinOp::Gt(_) => "Gt",
        BinOp::Ge(_) => "Ge",
        op => {
            return Ok(match name {
                Some(name) => {
                    let operand = hygienic("left");
                    quote_spanned!(span=> {
                        let #operand = #left;
                        ::rnic_kernel::staged::named(#name, || #operand #op #right)
                    })
                }
                None => quote_spanned!(span=> (#left #op #right)),
            });
        }
    };
    let comparison = Ident::new(comparison, span);
    let (first, second) = (hygienic("left"), hygienic("right"));
    let compare = quote_spanned!(span=>
        ::rnic_kernel::staged::Compare::compare(#first, ::rnic_kernel::ir::BinaryOp::#comparison, #second));
    let compare = named(name.or_else(|| constant_name(&operation.left)), compare);
    Ok(quote_spanned!(span=> { let #first = #left; let #second = #right; #compare }))
}

/// A name that the author's own names cannot meet.
fn hygienic(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

fn is_compound(op: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

fn field(access: &ExprField) -> Result<TokenStream> {
    if is_place(&access.base) {
        if is_named(&access.member, "next") {
            return refuse(access, "`.next` is written only; read the signal with `.val()`");
        }
        if is_named(&access.member, "changed") {
            return refuse(access, "whether a signal has changed is known to the simulation only");
        }
        let (base, member) = (value(&access.base)?, &access.member);
        return Ok(quote!(#base.#member));
    }
    let base = value(&access.base)?;
    match &access.member {
        Member::Unnamed(index) => Ok(quote!(#base.#index)),
        Member::Named(name) => {
            let (get, offset) = field_accessors(&[name]);
            let label = name.unraw().to_string();
            Ok(quote_spanned!(access.span()=> #base.project(#label, #get, #offset)))
        }
    }
}

/// Closures for a field, or a field of a field: one for its type, one for its offset.
fn field_accessors(path: &[&Ident]) -> (TokenStream, TokenStream) {
    let offsets = path.iter().enumerate().map(|(depth, name)| {
        let (before, offset) = (&path[..depth], format_ident!("get_my_offset_{}", name));
        quote!(value #(.#before)*.#offset())
    });
    (quote!(|value| value #(.#path)*), quote!(|value| 0 #(+ #offsets)*))
}

fn method(call: &ExprMethodCall) -> Result<TokenStream> {
    let (name, generics, span) = (&call.method, &call.turbofish, call.span());
    let receiver = value(&call.receiver)?;
    if name == "val" {
        return Ok(quote_spanned!(span=> #receiver.staged_val()));
    }
    if is_place(&call.receiver) && !syntax::is_generator_method(name) {
        let message = "a kernel reads its block with `.val()`; for a number known at generation, use a field";
        return refuse(name, message);
    }
    if name == "into" {
        let converted = quote_spanned!(span=> ::rnic_kernel::staged::convert(#receiver));
        return Ok(named(constant_name(&call.receiver), converted));
    }
    let arguments = call.args.iter().map(|argument| match name == "replace_bit" {
        true => constant_or_value(argument),
        false => value(argument),
    });
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    Ok(quote_spanned!(span=> #receiver.#name #generics (#(#arguments),*)))
}

fn function(call: &ExprCall) -> Result<TokenStream> {
    let Expr::Path(function) = &*call.func else {
        return refuse(&call.func, "a kernel calls functions by name");
    };
    let (path, span) = (&function.path, call.span());
    let last = path.segments.last().expect("a path has a segment");
    let name = last.ident.to_string();
    match name.as_str() {
        DECODER if call.args.len() == 1 => {
            return refuse(
                call,
                "the variants of an enum of numbers exist in a `match` only: match on this call",
            );
        }
        "bits" | "bit_cast" => {
            let arguments = values(&call.args)?;
            let converted = quote_spanned!(span=> ::rnic_kernel::staged::#last(#(#arguments),*));
            return Ok(named(call.args.first().and_then(constant_name), converted));
        }
        "default" | "mask" if call.args.is_empty() => {
            return Ok(quote_spanned!(span=> ::rnic_kernel::staged::constant(#call)));
        }
        "from" if call.args.len() == 1 && !is_primitive(path) => {
            let argument = value(&call.args[0])?;
            return Ok(quote_spanned!(span=> ::rnic_kernel::staged::convert(#argument)));
        }
        _ => {}
    }
    if is_primitive(path) || name == "clog2" {
        let arguments = values(&call.args)?;
        return Ok(quote_spanned!(span=> #path(#(#arguments),*)));
    }
    let arguments = values(&call.args)?;
    let twin = twin_path(path);
    Ok(quote_spanned!(span=> #twin(#(#arguments),*)))
}

/// `a::name::<N>` becomes `a::name::lower::<N>`.
fn twin_path(path: &Path) -> Path {
    let mut path = path.clone();
    let last = path.segments.last_mut().expect("a path has a segment");
    let arguments = std::mem::replace(&mut last.arguments, PathArguments::None);
    let ident = Ident::new("lower", last.ident.span());
    path.segments.push(syn::PathSegment { ident, arguments });
    path
}

fn macro_value(call: &ExprMacro) -> Result<TokenStream> {
    if call.mac.path.segments.last().is_none_or(|last| last.ident != "cat") {
        return refuse(call, "a kernel may use the macros `clock!` and `cat!` only");
    }
    let parts = call.mac.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated)?;
    let parts = parts.iter().map(constant_or_value).collect::<Result<Vec<_>>>()?;
    Ok(quote_spanned!(call.span()=> ::rnic_kernel::functions::concat::lower((#(#parts,)*))))
}

fn struct_literal(literal: &ExprStruct) -> Result<TokenStream> {
    let path = &literal.path;
    let mut names = Vec::new();
    let mut fields = Vec::new();
    for field in &literal.fields {
        let Member::Named(name) = &field.member else {
            return refuse(&field.member, "a hardware struct has named fields");
        };
        let value = constant_or_value(&field.expr)?;
        let (get, offset) = field_accessors(&[name]);
        let label = name.unraw().to_string();
        names.push(name);
        fields.push(quote_spanned!(field.span()=> .field(#label, #get, #offset, #value)));
    }
    let (any_rest, finish) = match &literal.rest {
        Some(rest) => {
            let rest = constant_or_value(rest)?;
            (Some(quote!(..::rnic_kernel::staged::any())), quote!(.finish_with(#rest)))
        }
        None => (None, quote!(.finish())),
    };
    // The closure is never called. It lets rustc infer the type of the literal as it does for the native copy.
    Ok(quote_spanned!(literal.span()=> ::rnic_kernel::staged::StructLiteral::like(|| {
        #path { #(#names: ::rnic_kernel::staged::any(),)* #any_rest }
    }) #(#fields)* #finish))
}

fn if_value(conditional: &ExprIf) -> Result<TokenStream> {
    let Some((_, otherwise)) = &conditional.else_branch else {
        return refuse(conditional, "an `if` that is a value needs an `else`");
    };
    let condition = condition(&conditional.cond)?;
    let then = value_block(&conditional.then_branch)?;
    let otherwise = branch_value(otherwise)?;
    Ok(quote_spanned!(conditional.span()=>
        ::rnic_kernel::staged::choose(#condition, || #then, || #otherwise)))
}

// ---- match -----------------------------------------------------------------------------------------------

fn match_statement(choice: &ExprMatch) -> Result<TokenStream> {
    match_with(choice, &quote!(MatchStatement), |body| match body {
        // What is written above the arm belongs to the first statement in it.
        Expr::Block(block) if block.label.is_none() => {
            let Some((first, rest)) = block.block.stmts.split_first() else { return Ok(quote!({})) };
            let above = comments::above(body);
            let first = statement_below(&above, first)?;
            let rest: TokenStream = rest.iter().map(statement).collect::<Result<_>>()?;
            Ok(quote!({ #first #rest }))
        }
        other => {
            let body = effect(other)?;
            Ok(quote!({ #body }))
        }
    })
}

fn match_value(choice: &ExprMatch) -> Result<TokenStream> {
    match_with(choice, &quote!(MatchValue), branch_value)
}

fn match_with(
    choice: &ExprMatch,
    recorder: &TokenStream,
    body: impl Fn(&Expr) -> Result<TokenStream>,
) -> Result<TokenStream> {
    let decoded = decoded_number(&choice.expr);
    let matched = value(decoded.unwrap_or(&choice.expr))?;
    let [subject, arms, test] = ["subject", "arms", "test"].map(hygienic);
    let recorded = choice.arms.iter().enumerate().map(|(index, arm)| {
        let mut pattern = Pattern::default();
        let mut fits = match decoded {
            Some(_) => variant_test(&arm.pat, &quote!(#subject), index + 1 == choice.arms.len())?,
            None => pattern.test(&arm.pat, &quote!(#subject))?,
        };
        if let Some((_, guard)) = &arm.guard {
            let guard = condition(guard)?;
            let bindings = &pattern.bindings;
            fits = quote!(::rnic_kernel::staged::all(vec![#fits, {
                #(#bindings)*
                ::rnic_kernel::staged::Test::from(#guard)
            }]));
        }
        let (bindings, mark, body) = (&pattern.bindings, comments::mark(&arm.body), body(&arm.body)?);
        Ok(quote! {
            let #test = #fits;
            #arms.arm(#test, || { #(#bindings)* #mark #body });
        })
    });
    let recorded = recorded.collect::<Result<Vec<_>>>()?;
    Ok(quote_spanned!(choice.span()=> {
        let #subject = #matched;
        let mut #arms = ::rnic_kernel::staged::#recorder::begin();
        #(#recorded)*
        #arms.finish()
    }))
}

/// What a pattern tests and which names it gives.
#[derive(Default)]
struct Pattern {
    bindings: Vec<TokenStream>,
}

impl Pattern {
    fn test(&mut self, pattern: &Pat, subject: &TokenStream) -> Result<TokenStream> {
        let staged = quote!(::rnic_kernel::staged);
        match pattern {
            Pat::Wild(_) => Ok(quote!(#staged::Test::Known(true))),
            Pat::Lit(literal) => {
                Ok(quote_spanned!(literal.span()=> #staged::Matches::is(#subject, #literal)))
            }
            Pat::Path(path) => Ok(constant_test(&path.path, subject)),
            Pat::Ident(name) if is_constant_case(&name.ident) && name.subpat.is_none() => {
                Ok(constant_test(&name.ident.clone().into(), subject))
            }
            Pat::Ident(name) if name.by_ref.is_none() && name.mutability.is_none() => {
                let ident = &name.ident;
                self.bindings.push(quote!(let #ident = #subject;));
                match &name.subpat {
                    Some((_, inner)) => self.test(inner, subject),
                    None => Ok(quote!(#staged::Test::Known(true))),
                }
            }
            Pat::Or(alternatives) => {
                let bound = self.bindings.len();
                let tests = alternatives.cases.iter().map(|case| self.test(case, subject));
                let tests = tests.collect::<Result<Vec<_>>>()?;
                if self.bindings.len() > bound {
                    return refuse(alternatives, "alternatives of a pattern cannot bind names in a kernel");
                }
                Ok(quote!(#staged::alternatives(vec![#(#tests),*])))
            }
            Pat::Paren(inner) => self.test(&inner.pat, subject),
            Pat::Range(range) => range_test(range, subject),
            Pat::Tuple(tuple) => self.elements(tuple.elems.iter(), |index| {
                let index = syn::Index::from(index);
                quote!(#subject.#index)
            }),
            Pat::Slice(slice) => self.elements(slice.elems.iter(), |index| quote!(#subject[#index])),
            Pat::Struct(pattern) => {
                let tests = pattern.fields.iter().map(|field| match &field.member {
                    Member::Named(name) => {
                        let (get, offset) = field_accessors(&[name]);
                        let label = name.unraw().to_string();
                        self.test(&field.pat, &quote!(#subject.project(#label, #get, #offset)))
                    }
                    Member::Unnamed(index) => refuse(index, "a hardware struct has named fields"),
                });
                let tests = tests.collect::<Result<Vec<_>>>()?;
                Ok(quote!(#staged::all(vec![#(#tests),*])))
            }
            other => refuse(other, "this pattern has no meaning in hardware"),
        }
    }

    fn elements<'a>(
        &mut self,
        elements: impl Iterator<Item = &'a Pat>,
        part: impl Fn(usize) -> TokenStream,
    ) -> Result<TokenStream> {
        let tests = elements.enumerate().map(|(index, element)| self.test(element, &part(index)));
        let tests = tests.collect::<Result<Vec<_>>>()?;
        Ok(quote!(::rnic_kernel::staged::all(vec![#(#tests),*])))
    }
}

/// The number in `Opcode::from_number(number)`, whose variants a `match` may name.
fn decoded_number(matched: &Expr) -> Option<&Expr> {
    match matched {
        Expr::Paren(inner) => decoded_number(&inner.expr),
        Expr::Call(call) if call.args.len() == 1 && is_decoder(&call.func) => call.args.first(),
        _ => None,
    }
}

fn is_decoder(function: &Expr) -> bool {
    matches!(function, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == DECODER))
}

/// What an enum of numbers calls the function from a number to one of its variants, or `None`.
const DECODER: &str = "from_number";

/// `Some(Opcode::Send | Opcode::Read)`, as a test of the number. rustc has seen that the arms name every variant, so that
/// what is left for a last arm of `None` are the other numbers.
fn variant_test(pattern: &Pat, subject: &TokenStream, is_last: bool) -> Result<TokenStream> {
    let staged = quote!(::rnic_kernel::staged);
    match pattern {
        Pat::Wild(_) => Ok(quote!(#staged::Test::Known(true))),
        Pat::Paren(inner) => variant_test(&inner.pat, subject, is_last),
        Pat::Or(alternatives) => {
            let tests = alternatives.cases.iter().map(|case| variant_test(case, subject, is_last));
            let tests = tests.collect::<Result<Vec<_>>>()?;
            Ok(quote!(#staged::alternatives(vec![#(#tests),*])))
        }
        Pat::TupleStruct(some) if some.path.is_ident("Some") && some.elems.len() == 1 => match &some.elems[0]
        {
            Pat::Wild(wild) => refuse(wild, "name the variants here, or the rest of them with `_`"),
            inner => variant_test(inner, subject, is_last),
        },
        Pat::Ident(name) if name.ident == "None" => match is_last {
            true => Ok(quote!(#staged::Test::Known(true))),
            false => refuse(name, "`None`, all other numbers, is the last arm"),
        },
        Pat::Ident(name) if is_constant_case(&name.ident) && name.subpat.is_none() => {
            Ok(number_test(&name.ident.clone().into(), subject))
        }
        Pat::Path(path) => Ok(number_test(&path.path, subject)),
        other => refuse(other, "the number of an enum is matched by `Some(Variant)`, `None` and `_`"),
    }
}

fn number_test(variant: &Path, subject: &TokenStream) -> TokenStream {
    let test = quote_spanned!(variant.span()=> ::rnic_kernel::staged::Matches::is(#subject, #variant as u64));
    named(Some(constant_label(variant)), test)
}

fn constant_test(path: &Path, subject: &TokenStream) -> TokenStream {
    let test = quote_spanned!(path.span()=> ::rnic_kernel::staged::Matches::is(#subject, #path));
    named(Some(constant_label(path)), test)
}

/// `low..=high`, `low..high`, and either end alone.
fn range_test(range: &PatRange, subject: &TokenStream) -> Result<TokenStream> {
    let upper = match range.limits {
        RangeLimits::Closed(_) => quote!(Le),
        RangeLimits::HalfOpen(_) => quote!(Lt),
    };
    let bound = |bound: &Expr, op: TokenStream| {
        let test = quote_spanned!(bound.span()=>
            ::rnic_kernel::staged::within(#subject, ::rnic_kernel::ir::BinaryOp::#op, #bound));
        named(constant_name(bound), test)
    };
    let low = range.start.as_deref().map(|low| bound(low, quote!(Ge)));
    let high = range.end.as_deref().map(|high| bound(high, upper));
    let tests = low.into_iter().chain(high);
    Ok(quote!(::rnic_kernel::staged::all(vec![#(#tests),*])))
}

// ---- names and types -------------------------------------------------------------------------------------

/// Lets the literal that `staged` makes carry the name of the Rust constant.
fn named(name: Option<String>, staged: TokenStream) -> TokenStream {
    match name {
        Some(name) => quote!(::rnic_kernel::staged::named(#name, || #staged)),
        None => staged,
    }
}

/// The staged twin of a type: numbers of the generator stay what they are, all else becomes a node.
pub(crate) fn node_type(ty: &Type) -> TokenStream {
    match ty {
        ty if is_generator_type(ty) => quote!(#ty),
        Type::Infer(_) => quote!(_),
        Type::Tuple(tuple) => {
            let elements = tuple.elems.iter().map(node_type);
            quote!((#(#elements,)*))
        }
        Type::Array(array) => {
            let (element, length) = (node_type(&array.elem), &array.len);
            quote!([#element; #length])
        }
        other => quote!(::rnic_kernel::Node<#other>),
    }
}
