//! The `key = value` list of an attribute.

use crate::duration;
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Ident, Lit, LitStr, Token};

/// The most bytes of a name, as the server checks.
const LONGEST_NAME: usize = 255;

struct Argument {
    key: Ident,
    value: Expr,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        Ok(Self { key, value: input.parse()? })
    }
}

/// The arguments of one attribute.
pub(crate) struct Arguments {
    list: Vec<Argument>,
}

impl Arguments {
    /// Parses a list whose keys are among `allowed`, each at most once.
    pub(crate) fn parse(tokens: TokenStream, attribute: &str, allowed: &[&str]) -> syn::Result<Self> {
        let list: Vec<Argument> = Punctuated::<Argument, Token![,]>::parse_terminated.parse2(tokens)?.into_iter().collect();
        for (index, argument) in list.iter().enumerate() {
            let key = argument.key.to_string();
            if !allowed.contains(&key.as_str()) {
                return Err(syn::Error::new(argument.key.span(), format!("#[{attribute}] has no argument {key}; it has {}", allowed.join(", "))));
            }
            if list[..index].iter().any(|before| before.key == argument.key) {
                return Err(syn::Error::new(argument.key.span(), format!("{key} is given twice")));
            }
        }
        Ok(Self { list })
    }

    /// The expression of a key.
    pub(crate) fn expression(&self, key: &str) -> Option<&Expr> {
        self.list.iter().find(|argument| argument.key == key).map(|argument| &argument.value)
    }

    fn text(&self, key: &str) -> syn::Result<Option<&LitStr>> {
        match self.expression(key) {
            None => Ok(None),
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => Ok(Some(text)),
            Some(other) => Err(syn::Error::new_spanned(other, format!("{key} is a string in quotes"))),
        }
    }

    /// A bool; false when it is not given.
    pub(crate) fn flag(&self, key: &str) -> syn::Result<bool> {
        match self.expression(key) {
            None => Ok(false),
            Some(Expr::Lit(ExprLit { lit: Lit::Bool(flag), .. })) => Ok(flag.value),
            Some(other) => Err(syn::Error::new_spanned(other, format!("{key} is true or false"))),
        }
    }

    /// A name: 1 to 255 bytes without U+0000.
    pub(crate) fn name(&self, key: &str) -> syn::Result<Option<String>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        checked_name(key, text.value(), text.span()).map(Some)
    }

    /// A duration as tokens of an `Option<Duration>`.
    pub(crate) fn duration(&self, key: &str) -> syn::Result<TokenStream> {
        let Some(text) = self.text(key)? else { return Ok(quote!(::core::option::Option::None)) };
        let millis = duration::millis(key, text)?;
        Ok(quote!(::core::option::Option::Some(::core::time::Duration::from_millis(#millis))))
    }
}

/// Checks a name as the server will.
pub(crate) fn checked_name(key: &str, name: String, span: Span) -> syn::Result<String> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
        return Err(syn::Error::new(span, format!("{key} has {} bytes; allowed are 1 to {LONGEST_NAME} without U+0000", name.len())));
    }
    Ok(name)
}
