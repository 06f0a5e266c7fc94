//! Laws of the machine, with a small server that records decisions as the core does and a small interpreter for workflow code.

mod laws;
mod program;
mod rules;
mod server;
