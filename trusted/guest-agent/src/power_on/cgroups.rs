//! Control groups, switched on before anything runs beside this program.

use std::fs;
use std::io;
use std::path::Path;

const ROOT: &str = "/sys/fs/cgroup";
const CONTROLLERS: &str = "+cpu +cpuset +io +memory +pids";
/// A group without processes that is never removed.
const HELD: &str = "held";

/// Switches the controllers on and keeps them in use. The first group that uses `cpuset` or `memory` makes
/// the kernel patch its page allocator while it runs. An emulator with one thread for each vCPU may then
/// still execute the breakpoint that marks the place, which is a kernel panic. So this happens now, with
/// every other vCPU idle, and the group makes it happen only once.
pub(super) fn switch_on() -> io::Result<()> {
    let root = Path::new(ROOT);
    fs::write(root.join("cgroup.subtree_control"), CONTROLLERS)?;
    fs::create_dir(root.join(HELD))
}
