use std::path::{Path, PathBuf};
use std::process::Command;

use cloister_node_api::VmState;

use crate::support::{World, write_image};
