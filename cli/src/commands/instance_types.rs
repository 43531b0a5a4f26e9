//! `cloister instance-types`: the sizes that CVMs can have, and what they cost.

use cloister_management_api::InstanceTypes;

use super::Outcome;
use crate::api::read;
use crate::output::{Align, Table};
use crate::session::Session;

/// Arguments of `instance-types`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Lists the sizes.
pub(super) async fn run(_args: Args, session: &Session) -> Outcome {
    let (client, output) = (session.client()?, &session.output);
    let document = client.get(&["instance-types"], &[]).await?;
    if output.json {
        output.document(&document);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("TYPE", Align::Left),
        ("NAME", Align::Left),
        ("VCPU", Align::Right),
        ("MEMORY MiB", Align::Right),
        ("DISK GiB", Align::Right),
        ("GPUS", Align::Right),
        ("PER HOUR", Align::Right),
    ]);
    for size in read::<InstanceTypes>(&document)?.result.into_iter().flat_map(|family| family.items) {
        table.row([
            size.id,
            size.name,
            size.vcpu.to_string(),
            size.memory_mb.to_string(),
            size.default_disk_size_gb.to_string(),
            size.gpu_count.to_string(),
            size.hourly_rate,
        ]);
    }
    output.table(&table, "The server has no sizes.");
    output.say("The disk is not in the price; see cloister deploy --estimate.");
    Ok(())
}
