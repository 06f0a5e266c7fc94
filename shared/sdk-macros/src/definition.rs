//! From an async function to a definition type.

use crate::arguments::{Arguments, checked_name};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{FnArg, Ident, ItemFn, PatType, ReturnType, Type};

/// Arguments of `#[workflow]`.
const WORKFLOW_KEYS: [&str; 4] = ["name", "execution_timeout", "chain_execution_timeout", "sla"];
/// Arguments of `#[activity]`.
const ACTIVITY_KEYS: [&str; 8] = ["name", "start_to_close", "heartbeat_timeout", "schedule_to_start", "schedule_to_close", "retry", "queue", "local"];
/// Those that mean nothing to an activity that runs on the spot.
const NOT_LOCAL: [&str; 4] = ["schedule_to_close", "schedule_to_start", "heartbeat_timeout", "queue"];

/// What both kinds of definition need to know of the function.
struct Parts {
    function: ItemFn,
    name: Ident,
    context_by_reference: bool,
    inputs: Vec<Type>,
    output: Type,
}

fn parts(attribute: &str, context: &str, item: TokenStream) -> syn::Result<Parts> {
    let function: ItemFn = syn::parse2(item)?;
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(syn::Error::new_spanned(signature.fn_token, format!("#[{attribute}] needs an async fn")));
    }
    if !signature.generics.params.is_empty() {
        return Err(syn::Error::new_spanned(&signature.generics, format!("#[{attribute}] takes no generic parameters: the server knows it by one name")));
    }
    let takes = format!("the first parameter of #[{attribute}] is `ctx: &{context}`");
    let mut types = Vec::new();
    for parameter in &signature.inputs {
        match parameter {
            FnArg::Typed(PatType { ty, .. }) => types.push((**ty).clone()),
            FnArg::Receiver(receiver) => return Err(syn::Error::new_spanned(receiver, takes)),
        }
    }
    if types.is_empty() {
        return Err(syn::Error::new_spanned(&signature.ident, takes));
    }
    let context_type = types.remove(0);
    let names_context = |ty: &Type| matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == context));
    let context_by_reference = match &context_type {
        Type::Reference(reference) if names_context(&reference.elem) => true,
        owned if names_context(owned) => false,
        other => return Err(syn::Error::new_spanned(other, takes)),
    };
    let ReturnType::Type(_, output) = signature.output.clone() else {
        return Err(syn::Error::new_spanned(&signature.ident, format!("#[{attribute}] returns a Result")));
    };
    Ok(Parts { name: signature.ident.clone(), context_by_reference, inputs: types, output: *output, function })
}

/// Tokens that do not depend on the kind: the type, its maker, the body as `call`, and the pieces of the trait implementation.
struct Common {
    items: TokenStream,
    input: TokenStream,
    output: TokenStream,
    invoke: TokenStream,
}

fn common(parts: Parts) -> Common {
    let Parts { function, name, context_by_reference, inputs, output } = parts;
    let ItemFn { attrs, vis, mut sig, block } = function;
    sig.ident = format_ident!("call", span = name.span());
    let docs: Vec<_> = attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect();
    let made = format!("The definition of `{name}`.");
    let body = format!("The body of `{name}` as written, for unit tests.");
    let items = quote! {
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy)]
        #vis struct #name {}

        #[doc = #made]
        #[allow(dead_code)]
        #vis fn #name() -> #name { #name {} }

        #[allow(dead_code)]
        impl #name {
            #[doc = #body]
            #(#attrs)*
            #vis #sig #block
        }
    };
    let context = if context_by_reference { quote!(&ctx) } else { quote!(ctx) };
    let (input, invoke) = match inputs.as_slice() {
        [] => (quote!(()), quote!({ let () = input; #name::call(#context).await })),
        [only] => (quote!(#only), quote!(#name::call(#context, input).await)),
        several => {
            let names: Vec<_> = (0..several.len()).map(|index| format_ident!("input_{index}")).collect();
            (quote!((#(#several,)*)), quote!({ let (#(#names,)*) = input; #name::call(#context, #(#names),*).await }))
        }
    };
    let output = quote!(<#output as ::harvest_sdk::definition::Outcome>::Ok);
    Common { items, input, output, invoke }
}

/// `#[workflow]`.
pub(crate) fn workflow(arguments: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let arguments = Arguments::parse(arguments, "workflow", &WORKFLOW_KEYS)?;
    let parts = parts("workflow", "WorkflowContext", item)?;
    let ident = parts.name.clone();
    let registered = match arguments.name("name")? {
        Some(name) => name,
        None => checked_name("name", ident.to_string(), ident.span())?,
    };
    let execution_timeout = arguments.duration("execution_timeout")?;
    let chain_execution_timeout = arguments.duration("chain_execution_timeout")?;
    let sla = arguments.duration("sla")?;
    let Common { items, input, output, invoke } = common(parts);
    Ok(quote! {
        #items

        impl ::harvest_sdk::WorkflowDefinition for #ident {
            type Input = #input;
            type Output = #output;
            const NAME: &'static str = #registered;

            fn execution_timeout() -> ::core::option::Option<::core::time::Duration> {
                #execution_timeout
            }

            fn chain_execution_timeout() -> ::core::option::Option<::core::time::Duration> {
                #chain_execution_timeout
            }

            fn sla() -> ::core::option::Option<::core::time::Duration> {
                #sla
            }

            fn run(ctx: ::harvest_sdk::WorkflowContext, input: Self::Input)
                -> ::harvest_sdk::definition::BoxFuture<::core::result::Result<Self::Output, ::harvest_sdk::WorkflowFailure>>
            {
                ::std::boxed::Box::pin(async move {
                    #invoke.map_err(::core::convert::Into::<::harvest_sdk::WorkflowFailure>::into)
                })
            }
        }
    })
}

/// `#[activity]`.
pub(crate) fn activity(arguments: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let arguments = Arguments::parse(arguments, "activity", &ACTIVITY_KEYS)?;
    let parts = parts("activity", "ActivityContext", item)?;
    let ident = parts.name.clone();
    let registered = match arguments.name("name")? {
        Some(name) => name,
        None => checked_name("name", ident.to_string(), ident.span())?,
    };
    let local = arguments.flag("local")?;
    if local && let Some((key, value)) = NOT_LOCAL.iter().find_map(|key| Some((key, arguments.expression(key)?))) {
        let problem = format!("{key} does not apply to a local activity, which runs on the spot: use start_to_close, and a low retry count");
        return Err(syn::Error::new_spanned(value, problem));
    }
    let start_to_close = arguments.duration("start_to_close")?;
    let heartbeat_timeout = arguments.duration("heartbeat_timeout")?;
    let schedule_to_start = arguments.duration("schedule_to_start")?;
    let schedule_to_close = arguments.duration("schedule_to_close")?;
    let retry = match arguments.expression("retry") {
        Some(policy) => quote!(::core::option::Option::Some(#policy)),
        None => quote!(::core::option::Option::None),
    };
    let queue = match arguments.name("queue")? {
        Some(queue) => quote!(::core::option::Option::Some(::std::string::String::from(#queue))),
        None => quote!(::core::option::Option::None),
    };
    let Common { items, input, output, invoke } = common(parts);
    Ok(quote! {
        #items

        impl ::harvest_sdk::ActivityDefinition for #ident {
            type Input = #input;
            type Output = #output;
            const NAME: &'static str = #registered;

            fn options() -> ::harvest_sdk::ActivityOptions {
                ::harvest_sdk::ActivityOptions {
                    queue: #queue,
                    retry: #retry,
                    start_to_close: #start_to_close,
                    schedule_to_start: #schedule_to_start,
                    heartbeat_timeout: #heartbeat_timeout,
                    schedule_to_close: #schedule_to_close,
                }
            }

            fn is_local() -> bool {
                #local
            }

            fn run(ctx: ::harvest_sdk::ActivityContext, input: Self::Input)
                -> ::harvest_sdk::definition::BoxFuture<::core::result::Result<Self::Output, ::harvest_sdk::ActivityFailure>>
            {
                ::std::boxed::Box::pin(async move {
                    #invoke.map_err(::core::convert::Into::<::harvest_sdk::ActivityFailure>::into)
                })
            }
        }
    })
}
