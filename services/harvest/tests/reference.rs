//! docs/reference has every command with its options, and every HTTP route.
#![allow(clippy::unwrap_used)] // tests: also in their helpers

use clap::{Command, CommandFactory as _};

const CLI: &str = include_str!("../../../docs/reference/cli.md");
const HTTP: &str = include_str!("../../../docs/reference/http.md");
const ROUTES: &str = include_str!("../../frontend/src/http.rs");

/// All commands that do something, with their whole names.
fn leaves(prefix: &str, command: &Command, found: &mut Vec<(String, Command)>) {
    let name = format!("{prefix}{}", command.get_name());
    let visible: Vec<&Command> = command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
    if visible.is_empty() {
        found.push((name, command.clone()));
        return;
    }
    for inner in visible {
        leaves(&format!("{name} "), inner, found);
    }
}

#[test]
fn every_command_has_a_section_that_names_its_options() {
    let cli = harvest::cli::Cli::command();
    for option in cli.get_arguments().filter_map(|argument| argument.get_long()) {
        assert!(CLI.contains(&format!("`--{option}")), "cli.md does not name the option --{option} of all commands");
    }
    let mut commands = Vec::new();
    leaves("", &cli, &mut commands);
    assert!(commands.len() >= 15, "the commands were not found");
    for (name, command) in commands {
        let section = CLI.split("\n### ").find(|section| section.starts_with(&format!("{name}\n")));
        let section = section.unwrap_or_else(|| panic!("cli.md has no section {name}"));
        for option in command.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(|argument| argument.get_long()) {
            assert!(section.contains(&format!("`--{option}")), "cli.md, {name}: --{option} is missing");
        }
    }
}

#[test]
fn every_route_is_named() {
    let routes: Vec<&str> = ROUTES.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(routes.len() >= 14, "the routes were not found");
    for route in routes.into_iter().filter(|route| *route != "/") {
        assert!(HTTP.contains(&format!("{route}`")), "http.md does not name {route}");
    }
}
