//! The complete command surface in one reviewed text.

use std::fmt::Write as _;

use clap::Command;

/// Every command's help, parents before children; options that all share are shown once.
fn help(command: &mut Command, path: &str, text: &mut String) {
    let _ = writeln!(text, "# {path}\n\n{}", command.render_long_help());
    for child in command.get_subcommands_mut().filter(|child| child.get_name() != "help") {
        let path = format!("{path} {}", child.get_name());
        let shared: Vec<_> =
            child.get_arguments().filter(|arg| arg.is_global_set()).map(|arg| arg.get_id().clone()).collect();
        *child = shared.iter().fold(child.clone(), |child, id| child.mut_arg(id, |arg| arg.hide(true)));
        help(child, &path, text);
    }
}

#[test]
fn the_command_surface_is_reviewed() {
    let mut command = cloister_cli::command();
    command.build();
    let mut text = String::new();
    help(&mut command, "cloister", &mut text);
    let text: String = text.lines().map(str::trim_end).flat_map(|line| [line, "\n"]).collect();
    insta::assert_snapshot!(text);
}

#[test]
fn every_shell_gets_a_completion_script() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = crate::support::bare(&home, &format!("completion {shell}")).output().unwrap();
        assert!(output.status.success(), "{shell}");
        assert!(String::from_utf8(output.stdout).unwrap().contains("deploy"), "{shell}");
    }
}

#[test]
fn the_documented_exit_codes_are_those_of_the_program() {
    let documented = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md")).unwrap();
    for (exit, meaning) in cloister_cli::Exit::TABLE {
        let row = format!("| {} | {meaning} |", exit as u8);
        assert!(documented.contains(&row), "docs/cli.md lacks: {row}");
    }
}
