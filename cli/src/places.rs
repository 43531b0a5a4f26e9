//! Where the command keeps files, by the XDG rules.

use std::path::PathBuf;

use crate::failure::Failure;

/// The directory of `variable`, or `fallback` below the home directory; relative values are ignored, as
/// the XDG specification demands.
fn xdg(variable: &str, fallback: &str) -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(fallback))).ok_or_else(|| {
        Failure::usage("there is no home directory to keep files in")
            .hint(format!("set HOME or {variable} to an absolute path"))
    })
}

/// Directory of a cloud hosted by `cloister up`: `$XDG_DATA_HOME/cloister`.
pub(crate) fn data_dir() -> Result<PathBuf, Failure> {
    Ok(xdg("XDG_DATA_HOME", ".local/share")?.join("cloister"))
}

/// Credentials kept by `cloister login`: `$XDG_CONFIG_HOME/cloister/credentials.json`.
pub(crate) fn login_credentials() -> Result<PathBuf, Failure> {
    Ok(xdg("XDG_CONFIG_HOME", ".config")?.join("cloister").join(crate::credentials::FILE_NAME))
}
